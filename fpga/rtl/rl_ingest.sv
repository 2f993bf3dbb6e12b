// Streams make messages of frames, and messages are cut into packets here: for
// each packet one entry of metadata and an order to fill the ring.
//
// Streams that may have work are served in turn, one packet at a time, five
// cycles each, seven where the host's credit is looked at. A packet is made when the window and the ring have room for it;
// this is the only writer of the newest PSN and of the streams' states.
`default_nettype none

module rl_ingest #(
    parameter QUEUE_PAIRS = 8,
    parameter MAX_READS   = 4, // outstanding on a queue pair
    parameter EXTERNAL    = 0  // there is an external source
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         enable,
    input  wire [43:0]  now,

    // Commands; the machine stands still while paused
    input  wire         pause,
    output reg          paused,
    input  wire [3:0]   index,
    input  wire         qp_init,
    input  wire         qp_drop,
    input  wire [23:0]  init_psn,
    input  wire [2:0]   init_mtu,
    input  wire [8:0]   init_window,
    input  wire         commit,
    input  wire         start,
    input  wire         stop,
    input  wire         clear,
    input  wire [2:0]   verb,
    input  wire         prbs,
    input  wire         solicited,
    input  wire         external,
    input  wire [24:0]  frame_bytes,
    input  wire [31:0]  slots,
    input  wire [31:0]  stride,
    input  wire [63:0]  base,
    input  wire [31:0]  rkey,
    input  wire [63:0]  credit,
    input  wire [63:0]  count,
    input  wire [31:0]  kbps,
    input  wire [49:0]  cost,
    input  wire [63:0]  allow,
    output reg          undelivered, // the stream of index has something on its way
    output reg  [3*QUEUE_PAIRS-1:0] states,
    output reg  [QUEUE_PAIRS-1:0]   ended,

    // Queue pairs
    input  wire [QUEUE_PAIRS-1:0] ready,
    output wire [3:0]   look_qp,
    input  wire [9:0]   look_una,
    input  wire [1:0]   look_tag,
    input  wire [12:0]  look_tail,
    input  wire [63:0]  look_released,
    input  wire         look_seen,
    input  wire [43:0]  look_again,

    // The external source's oldest frame
    input  wire         source_valid,
    input  wire [24:0]  source_length,
    output reg          source_pop,

    // Metadata, one entry a position
    output reg          meta_write,
    output reg  [11:0]  meta_address,
    output reg  [220:0] meta,
    output reg  [159:0] done,

    // Payload
    output reg          fill_valid,
    input  wire         fill_full,
    output reg  [3:0]   fill_qp,
    output reg  [9:0]   fill_position,
    output reg  [11:0]  fill_start,
    output reg  [12:0]  fill_length,
    output reg          fill_first,
    output reg          fill_trailer,
    output reg          fill_prbs,
    output reg          fill_external,
    output reg  [18:0]  fill_offset,
    output reg  [63:0]  fill_sequence,
    output reg  [31:0]  fill_frame,

    // Registers
    input  wire         snapshot,
    output reg  [23:0]  stat_next_psn,

    // Counters
    input  wire         sweep,
    input  wire         wipe,
    input  wire [4:0]   sweep_number,
    output wire [63:0]  counted
);

`include "rl_wire.vh"
`include "rl_counts.vh"
`include "rocelink_regs.vh"

    localparam [12:0] RING_BEATS = 13'd4096; // of one queue pair
    localparam [4:0]  ACK_EVERY  = 5'd16;    // packets without one inside a message
    localparam [24:0] TRAILER    = 25'd16;
    localparam [24:0] CREDIT     = 25'd8;

    localparam [2:0] AT_PICK = 3'd0, AT_READ = 3'd1, AT_TAKE = 3'd2, AT_HELD = 3'd3, AT_ASK = 3'd4, AT_CHECK = 3'd5,
                     AT_PUT = 3'd6;

    reg  [2:0] at;
    reg  [3:0] qp;
    assign look_qp = qp;

    // Streams whose turn it may be.
    reg  [QUEUE_PAIRS-1:0] wants;
    reg  [3:0] turn, pick;
    reg        picked;
    integer    k;
    always @(posedge clk) begin : choose
        integer    j;
        reg        found_high, found_low;
        reg [3:0]  high, low;
        found_high = 1'b0;
        found_low  = 1'b0;
        high       = 4'd0;
        low        = 4'd0;
        for (j = QUEUE_PAIRS-1; j >= 0; j = j - 1) begin
            wants[j] <= states[3*j +: 3] == RL_STREAM_STAT_STATE_STATE_RUNNING[2:0] ||
                        states[3*j +: 3] == RL_STREAM_STAT_STATE_STATE_STOPPING[2:0];
            if (wants[j]) begin
                low       = j[3:0];
                found_low = 1'b1;
                if (j[3:0] >= turn) begin
                    high       = j[3:0];
                    found_high = 1'b1;
                end
            end
        end
        pick   <= found_high ? high : low;
        picked <= found_low;
    end

    // What Commit gave, of the stream and of the queue pair.
    localparam STREAM = 1 + 1 + 1 + 4 + 25 + 32 + 32 + 64 + 32 + 1 + 64 + 1 + 64;
    wire [STREAM-1:0] stream_now;
    wire [3:0]  verbs = {verb == RL_STREAM_CONFIG_VERB_READ[2:0], verb == RL_STREAM_CONFIG_VERB_WRITE[2:0],
                         verb == RL_STREAM_CONFIG_VERB_WRITE[2:0] || verb == RL_STREAM_CONFIG_VERB_WRITE_IMM[2:0],
                         verb == RL_STREAM_CONFIG_VERB_SEND_IMM[2:0] || verb == RL_STREAM_CONFIG_VERB_WRITE_IMM[2:0]};
    reg         s_reads, s_writes, is_write, has_imm; // READ, WRITE with a trailer, any WRITE
    reg         s_external, s_valid, s_may, s_prbs, s_solicited, s_counts, s_credits;
    reg  [24:0] s_frame_bytes;
    reg  [31:0] s_last_slot, s_stride, s_rkey;
    reg  [63:0] s_base, s_last, s_credit;
    rl_table #(.WIDTH(STREAM)) streams (
        .clk(clk), .write(commit), .waddress(index),
        .wdata({external && EXTERNAL != 0, prbs, solicited, verbs, frame_bytes, slots - 32'd1, stride, base, rkey, count != 64'd0, count - 64'd1, credit != 64'd0, credit}),
        .raddress(qp), .rdata(stream_now)
    );
    wire [11:0] shape_now;
    reg  [2:0]  mtu_code;
    reg  [8:0]  window;
    rl_table #(.WIDTH(12)) shapes (
        .clk(clk), .write(qp_init), .waddress(index), .wdata({init_mtu, init_window}),
        .raddress(qp), .rdata(shape_now)
    );

    wire [15:0] may;
    reg         take;
    rl_pacer pacer (
        .clk(clk), .rst(rst), .set(commit), .set_index(index), .set_kbps(kbps), .set_cost(cost), .set_allow(allow),
        .take(take), .take_index(qp), .may(may)
    );

    // Where a stream is.
    localparam PLACE = 64 + 3 + 64 + 32 + 64 + 25 + 3;
    reg              write_back;
    reg              committed, inited, went; // a command's second cycle
    wire [PLACE-1:0] place_now;
    reg  [63:0] sequence_n, slot_address;
    reg  [31:0] slot;
    reg  [24:0] offset;
    reg         active, trailer, owed;
    reg  [63:0] asked_at; // sequence when the Credit word was last asked for
    reg         asked;    // changes each time; where it is seen nothing is on its way
    reg         blocked;  // waits for the host to release a slot
    reg         crediting; // the message asks for the Credit word
    rl_table #(.WIDTH(PLACE)) places (
        .clk(clk), .write(write_back), .waddress(qp),
        .wdata({asked_at, asked, blocked, crediting, sequence_n, slot, slot_address, offset, active, trailer, owed}),
        .raddress(qp), .rdata(place_now)
    );

    // Where a queue pair is.
    localparam NEWEST = 24 + 10 + 13 + 5 + 1 + 12 + 96;
    wire [NEWEST-1:0] newest_now;
    reg  [23:0] psn;
    reg  [9:0]  position;
    reg  [11:0] stalled_at;
    reg  [12:0] head;
    reg  [4:0]  since_ack;
    reg         stalled;
    reg  [15:0] messages, frames;
    reg  [31:0] bytes, frames_bytes;
    rl_table #(.WIDTH(NEWEST)) newest (
        .clk(clk), .write(write_back), .waddress(qp),
        .wdata({psn, position, head, since_ack, stalled, stalled_at, frames_bytes, frames, bytes, messages}),
        .raddress(qp), .rdata(newest_now)
    );

    wire [9:0]  position_now = newest_now[NEWEST-25 -: 10];
    reg  [11:0] una;          // and its tag
    reg  [12:0] tail;
    reg  [63:0] released, held, since_asked;
    reg         none_held, busy, again, half, taken_up, due;
    reg  [43:0] again_at;
    reg         asks;         // the Credit word is asked for in this turn
    reg         blocks;       // the stream begins to wait for a slot
    wire [32:0] slots_now = {1'b0, s_last_slot} + 33'd1;
    reg         up, on, stopping;
    reg         posts;     // a message began in this turn
    reg         takes;     // a frame was taken in this turn
    reg         last_frame; // the stream's next frame is its last

    // Of the next packet.
    reg  [24:0] rest, message_bytes;
    reg  [12:0] mtu;
    reg  [9:0]  inflight;
    reg  [25:0] rounded;
    reg         reads;    // the message is a READ
    reg  [12:0] used;
    reg  [12:0] length;
    reg         last;
    reg         first, single; // one PSN
    reg         wraps;   // the next slot is the ring's first
    wire [24:0] rest_now = message_bytes - offset;
    wire [6:0]  beats    = length[12:6] + {6'd0, |length[5:0]};
    wire        full     = inflight >= {1'b0, window} || RING_BEATS - used < {6'd0, beats};
    // PSNs that the packet takes: a READ has one for each response.
    reg  [18:0] responses;
    always @* begin
        case (mtu_code)
            3'd1:    responses = {1'b0, rounded[25:8]};
            3'd2:    responses = {2'b0, rounded[25:9]};
            3'd3:    responses = {3'b0, rounded[25:10]};
            3'd4:    responses = {4'b0, rounded[25:11]};
            default: responses = {5'b0, rounded[25:12]};
        endcase
        if (single)
            responses = 19'd1;
    end
    wire [23:0] psn_next = psn + {5'd0, responses};
    wire        imm      = last && has_imm;
    wire        put      = at == AT_PUT && !full && !fill_full;
    wire        asks_ack = last || since_ack == ACK_EVERY - 5'd1 || inflight + 10'd1 >= {1'b0, window};
    wire        frame_ends = last && (trailer || !s_writes);

    wire [15:0] messages_next     = messages + 16'd1;
    wire [31:0] bytes_next        = bytes + {7'd0, message_bytes};
    wire [15:0] frames_next       = frames + {15'd0, frame_ends};
    wire [31:0] frames_bytes_next = frame_ends ? frames_bytes + {7'd0, s_frame_bytes} : frames_bytes;

    reg         next_state_set;
    reg  [2:0]  next_state;
    reg         stalls;

    always @(posedge clk) begin
        meta_write     <= 1'b0;
        fill_valid     <= 1'b0;
        write_back     <= 1'b0;
        take           <= 1'b0;
        source_pop     <= 1'b0;
        next_state_set <= 1'b0;
        stalls         <= 1'b0;
        blocks         <= 1'b0;
        last_frame     <= s_counts && !s_external && sequence_n == s_last;
        paused         <= pause && at == AT_PICK && !write_back && !next_state_set && !meta_write && !fill_valid;

        case (at)
            AT_PICK: begin
                posts <= 1'b0;
                takes <= 1'b0;
                asks  <= 1'b0;
                if (!pause && enable && picked && !next_state_set) begin
                    at   <= AT_READ;
                    qp   <= pick;
                    turn <= pick + 4'd1;
                end
            end
            AT_READ: begin
                at <= AT_TAKE;
                {s_external, s_prbs, s_solicited, s_reads, s_writes, is_write, has_imm, s_frame_bytes, s_last_slot, s_stride, s_base, s_rkey,
                 s_counts, s_last, s_credits, s_credit} <= stream_now;
                s_valid <= source_valid;
                s_may   <= may[qp];
                if (EXTERNAL != 0 && stream_now[STREAM-1])
                    s_frame_bytes <= source_length; // it stands until the frame ends
                {mtu_code, window} <= shape_now;
                una      <= {look_tag, look_una};
                tail     <= look_tail;
                inflight <= position_now - look_una;
                released <= look_released;
                busy     <= look_seen != place_now[PLACE-65];
                again_at <= look_again;
                up       <= 1'b0;
                on       <= 1'b0;
                stopping <= 1'b0;
                for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                    if (qp == k[3:0]) begin
                        up       <= ready[k];
                        on       <= states[3*k +: 3] == RL_STREAM_STAT_STATE_STATE_RUNNING[2:0];
                        stopping <= states[3*k +: 3] == RL_STREAM_STAT_STATE_STATE_STOPPING[2:0];
                    end
            end
            AT_TAKE: begin
                at            <= AT_CHECK;
                message_bytes <= trailer ? TRAILER : crediting ? CREDIT : s_frame_bytes;
                mtu           <= 13'd128 << mtu_code;
                used          <= head - tail;
                held          <= sequence_n - released;
                none_held     <= released >= sequence_n;
                since_asked   <= sequence_n - asked_at;
                again         <= now - again_at < 44'h80000000000;
                if (!up || !on && !stopping) begin
                    at             <= AT_PICK;
                    next_state_set <= on || stopping;
                    next_state     <= RL_STREAM_STAT_STATE_STATE_ERROR[2:0];
                end else if (!active) begin
                    offset    <= 25'd0;
                    trailer   <= owed;
                    crediting <= 1'b0;
                    if (owed) begin
                        owed          <= 1'b0;
                        active        <= 1'b1;
                        message_bytes <= TRAILER;
                        posts         <= 1'b1;
                    end else if (stopping) begin
                        at             <= AT_PICK;
                        next_state_set <= inflight == 10'd0;
                        next_state     <= RL_STREAM_STAT_STATE_STATE_STOPPED[2:0];
                    end else if (s_writes && s_credits)
                        at <= AT_HELD;
                    else if (!s_may || s_external && !s_valid || s_reads && inflight >= MAX_READS[9:0])
                        at <= AT_PICK;
                    else begin
                        active         <= 1'b1;
                        owed           <= s_writes;
                        message_bytes  <= s_frame_bytes;
                        take           <= 1'b1;
                        posts          <= 1'b1;
                        takes          <= 1'b1;
                    end
                end
            end
            AT_HELD: begin // slots that the host has not released
                at       <= AT_ASK;
                taken_up <= !none_held && (held[63:32] != 32'd0 || held[31:0] > s_last_slot);
                half     <= !none_held && (held[63:31] != 33'd0 || {held[30:0], 1'b0} > s_last_slot);
                // An eighth of the ring, one slot at least.
                due      <= since_asked[63:30] != 34'd0 ||
                            since_asked[29:0] != 30'd0 && since_asked[29:0] >= slots_now[32:3];
            end
            AT_ASK:
                if (!busy && half && (due || taken_up && again)) begin
                    at            <= AT_CHECK;
                    active        <= 1'b1;
                    crediting     <= 1'b1;
                    message_bytes <= CREDIT;
                    asked         <= !asked;
                    asked_at      <= sequence_n;
                    posts         <= 1'b1;
                    asks          <= 1'b1;
                end else if (taken_up) begin
                    at         <= AT_PICK;
                    write_back <= 1'b1;
                    blocked    <= 1'b1;
                    blocks     <= !blocked;
                end else begin
                    blocked <= 1'b0;
                    if (!s_may || s_external && !s_valid) begin
                        at         <= AT_PICK;
                        write_back <= 1'b1;
                    end else begin
                        at             <= AT_CHECK;
                        active         <= 1'b1;
                        owed           <= 1'b1;
                        message_bytes  <= s_frame_bytes;
                        take           <= 1'b1;
                        posts          <= 1'b1;
                        takes          <= 1'b1;
                    end
                end
            AT_CHECK: begin
                at             <= AT_PUT;
                next_state_set <= takes && last_frame;
                next_state     <= RL_STREAM_STAT_STATE_STATE_STOPPING[2:0];
                first   <= offset == 25'd0;
                single  <= !s_reads && !crediting || message_bytes == 25'd0;
                wraps  <= slot == s_last_slot;
                rest    <= rest_now;
                reads   <= s_reads || crediting;
                rounded <= {1'b0, message_bytes} + {13'd0, mtu} - 26'd1;
                last    <= s_reads || rest_now <= {12'd0, mtu};
                length  <= (s_reads || crediting) ? 13'd0 : (rest_now <= {12'd0, mtu}) ? rest_now[12:0] : mtu;
            end
            default:
                if (full) begin
                    at         <= AT_PICK;
                    write_back <= 1'b1;
                    stalled    <= 1'b1;
                    stalled_at <= una;
                    stalls     <= !stalled || stalled_at != una;
                end else if (!fill_full) begin
                    at         <= AT_PICK;
                    write_back <= 1'b1;
                    psn        <= psn_next;
                    position   <= position + 10'd1;
                    head       <= head + {6'd0, beats};
                    since_ack  <= asks_ack ? 5'd0 : since_ack + 5'd1;
                    offset     <= offset + {12'd0, length};
                    if (last) begin
                        active   <= 1'b0;
                        messages <= messages_next;
                        bytes    <= bytes_next;
                    end
                    if (frame_ends) begin
                        trailer      <= 1'b0;
                        source_pop   <= s_external;
                        frames       <= frames_next;
                        frames_bytes <= frames_bytes_next;
                        sequence_n   <= sequence_n + 64'd1;
                        slot         <= wraps ? 32'd0 : slot + 32'd1;
                        slot_address <= wraps ? s_base : slot_address + {32'd0, s_stride};
                    end
                    meta_write <= 1'b1;
                    fill_valid <= 1'b1;
                end
        endcase

        if (at == AT_READ || commit || qp_init || qp_drop) begin
            {asked_at, asked, blocked, crediting, sequence_n, slot, slot_address, offset, active, trailer, owed} <= place_now;
            {psn, position, head, since_ack, stalled, stalled_at, frames_bytes, frames, bytes, messages} <= newest_now;
        end

        // Commands, while the machine stands still on their queue pair: what was
        // read is changed and written back.
        committed <= commit && !rst;
        inited    <= qp_init && !rst;
        went      <= qp_drop && !rst;
        if (committed) begin
            {asked_at, asked, blocked, crediting, sequence_n, slot} <= 0;
            slot_address <= base;
        end
        if (committed || went)
            {offset, active, trailer, owed} <= 0;
        if (inited || went) begin
            psn <= inited ? init_psn : 24'd0;
            {position, head, since_ack, stalled, stalled_at, frames_bytes, frames, bytes, messages} <= 0;
        end
        if (committed || inited || went)
            write_back <= 1'b1;

        meta_address <= {qp, position[7:0]};
        meta[RL_META_OPCODE    +: 8]  <= reads ? 8'h0c : (is_write ? 8'h06 : 8'h00) + ((first && last) ? 8'h04 : last ? 8'h02 : first ? 8'h00 : 8'h01) +
                                         {7'd0, imm};
        meta[RL_META_SOLICITED]       <= last && s_solicited && !trailer && !reads;
        meta[RL_META_ACK]             <= asks_ack;
        meta[RL_META_RETH]            <= (is_write || reads) && first;
        meta[RL_META_IMM]             <= imm;
        meta[RL_META_LENGTH    +: 13] <= length;
        meta[RL_META_START     +: 12] <= head[11:0];
        meta[RL_META_ADDRESS   +: 64] <= crediting ? s_credit : trailer ? slot_address + {32'd0, s_stride} - 64'd16 : slot_address;
        meta[RL_META_RKEY      +: 32] <= s_rkey;
        meta[RL_META_DMA       +: 32] <= {7'd0, message_bytes};
        meta[RL_META_IMMDT     +: 32] <= sequence_n[31:0];
        meta[RL_META_PSN       +: 24] <= psn;
        done[RL_DONE_TAIL      +: 13] <= head + {6'd0, beats};
        done[RL_DONE_MESSAGES  +: 16] <= last ? messages_next : messages;
        done[RL_DONE_BYTES     +: 32] <= last ? bytes_next : bytes;
        done[RL_DONE_FRAMES    +: 16] <= frames_next;
        done[RL_DONE_FRAMEBYTES +: 32] <= frames_bytes_next;
        done[RL_DONE_PSN       +: 24] <= psn_next;
        done[RL_DONE_LENGTH    +: 25] <= message_bytes;
        done[RL_DONE_READ]            <= reads;
        done[RL_DONE_CREDIT]          <= crediting;

        fill_qp       <= qp;
        fill_position <= position;
        fill_start    <= head[11:0];
        fill_length   <= length;
        fill_first    <= first;
        fill_trailer  <= trailer;
        fill_prbs     <= s_prbs && !s_external;
        fill_external <= s_external;
        fill_offset   <= offset[24:6];
        fill_sequence <= sequence_n;
        fill_frame    <= {7'd0, s_frame_bytes};

        // States: the machine's own changes, and commands while it stands still.
        for (k = 0; k < QUEUE_PAIRS; k = k + 1) begin
            if (next_state_set && qp == k[3:0]) begin
                states[3*k +: 3] <= next_state;
                if (next_state == RL_STREAM_STAT_STATE_STATE_STOPPING[2:0])
                    ended[k] <= 1'b1;
            end
            if (index == k[3:0]) begin
                if (commit)
                    states[3*k +: 3] <= RL_STREAM_STAT_STATE_STATE_CONFIGURED[2:0];
                if (start)
                    states[3*k +: 3] <= RL_STREAM_STAT_STATE_STATE_RUNNING[2:0];
                if (stop && states[3*k +: 3] == RL_STREAM_STAT_STATE_STATE_RUNNING[2:0])
                    states[3*k +: 3] <= RL_STREAM_STAT_STATE_STATE_STOPPING[2:0];
                if (qp_drop && (states[3*k +: 3] == RL_STREAM_STAT_STATE_STATE_RUNNING[2:0] ||
                                states[3*k +: 3] == RL_STREAM_STAT_STATE_STATE_STOPPING[2:0]))
                    states[3*k +: 3] <= RL_STREAM_STAT_STATE_STATE_ERROR[2:0];
                if (clear) begin
                    states[3*k +: 3] <= RL_STREAM_STAT_STATE_STATE_IDLE[2:0];
                    ended[k]         <= 1'b0;
                end
            end
        end

        if (pause && at == AT_PICK && !write_back && !next_state_set)
            qp <= index;
        undelivered <= place_now[2] || place_now[0] || position_now != look_una;
        if (snapshot)
            stat_next_psn <= newest_now[NEWEST-1 -: 24];

        if (rst) begin
            at             <= AT_PICK;
            turn           <= 4'd0;
            paused         <= 1'b0;
            meta_write     <= 1'b0;
            fill_valid     <= 1'b0;
            write_back     <= 1'b0;
            take           <= 1'b0;
            source_pop     <= 1'b0;
            next_state_set <= 1'b0;
            stalls         <= 1'b0;
            blocks         <= 1'b0;
            states         <= 0;
            ended          <= 0;
        end
    end

    // Counters. A message is counted when it begins, which is known in AT_CHECK, and
    // the next one is not there for five cycles. Of these, each has its counter: messages,
    // bytes, frames or Credit words asked for, bytes of frames; and the fifth, window stalls.
    // That the stream waits for a slot ends a turn without AT_CHECK.
    reg  [2:0]  part;   // one-hot, from the second cycle on
    reg  [3:0]  count_qp;
    reg         count_takes, count_asks;
    reg  [1:0]  stalled_ago, blocked_ago;
    always @(posedge clk) begin
        part <= rst ? 3'd0 : {part[1:0], at == AT_CHECK && posts};
        if (at == AT_CHECK || at == AT_ASK)
            count_qp <= qp;
        if (at == AT_CHECK) begin
            count_takes <= takes;
            count_asks  <= asks;
        end
        stalled_ago <= rst ? 2'd0 : {stalled_ago[0], stalls};
        blocked_ago <= rst ? 2'd0 : {blocked_ago[0], blocks};
    end

    reg         counts;
    reg  [4:0]  count_number;
    reg  [31:0] count_add;
    always @* begin
        counts       = at == AT_CHECK && posts;
        count_number = RL_COUNT_MESSAGES_POSTED;
        count_add    = 32'd1;
        if (part[0]) begin
            counts       = 1'b1;
            count_number = RL_COUNT_BYTES_POSTED;
            count_add    = {7'd0, message_bytes};
        end
        if (part[1]) begin
            counts       = count_takes || count_asks;
            count_number = count_takes ? RL_COUNT_SOURCE_FRAMES : RL_COUNT_CREDIT_READS;
        end
        if (part[2]) begin
            counts       = count_takes;
            count_number = RL_COUNT_SOURCE_BYTES;
            count_add    = {7'd0, s_frame_bytes};
        end
        if (stalled_ago[1]) begin
            counts       = 1'b1;
            count_number = RL_COUNT_WINDOW_STALLS;
        end
        if (blocked_ago[1]) begin
            counts       = 1'b1;
            count_number = RL_COUNT_CREDIT_STALLS;
        end
    end
    rl_counts #(.QUEUE_PAIRS(QUEUE_PAIRS)) counters (
        .clk(clk), .enable(counts), .qp((at == AT_CHECK) ? qp : count_qp), .number(count_number), .add(count_add),
        .sweep(sweep), .wipe(wipe), .sweep_qp(index), .sweep_number(sweep_number), .value(counted)
    );

endmodule

`default_nettype wire
