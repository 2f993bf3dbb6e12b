// The requester's state: what is sent next, what is acknowledged, timers.
//
// One event is dealt with at a time: a response before a timer's turn before a
// packet to send. So this is the only writer of the oldest unacknowledged packet
// and of everything else here, and going back is moving one pointer. Packets have
// positions, modulo 2^10: unacknowledged ≤ cursor ≤ sent, filled. A packet has one
// position and one PSN, a READ request one position and as many PSNs as responses.
//
// An acknowledgement of many packets takes no longer than of one: the entry of
// the last one holds the sums of all before it. Of the READs in flight only the
// oldest has a state. In front of it and behind it there is nothing but READs,
// or, where it is for the Credit word and has a single PSN, no other READ; so that
// an acknowledgement needs no search.
`default_nettype none

module rl_transport #(
    parameter QUEUE_PAIRS = 8,
    parameter CLOCK_KHZ   = 250000
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [43:0]  now,
    input  wire         enable,

    // Commands; the machine stands still while paused
    input  wire         pause,
    output reg          paused,
    input  wire         init,        // make the queue pair ready
    input  wire         drop,        // return it to Reset
    input  wire [3:0]   index,
    input  wire [23:0]  init_psn,
    input  wire [1:0]   init_epoch,
    input  wire [4:0]   init_timeout,
    input  wire [2:0]   init_retry,
    input  wire [2:0]   init_rnr_retry,
    input  wire [2:0]   init_mtu,

    // Packets in the ring: position is the next one's
    input  wire         filled,
    input  wire [3:0]   filled_qp,
    input  wire [9:0]   filled_position,

    // Responses
    input  wire         event_valid,
    input  wire [170:0] event_data,
    output wire         event_pop,

    // Sums up to a position, one cycle after its address
    output reg  [11:0]  done_address,
    input  wire [159:0] done_data,

    // Packets to send. A READ is asked for from where it is: with another PSN
    // and address, and less.
    input  wire         can_send,
    output reg          send_valid,
    output reg  [3:0]   send_qp,
    output reg  [7:0]   send_position,
    output reg          send_read,
    output reg  [23:0]  send_psn,
    output reg  [24:0]  send_offset,
    output reg  [24:0]  send_left,

    // Oldest unacknowledged packet and where the ring is free up to, for who
    // fills it; the tag changes when a READ got on
    input  wire [3:0]   look_qp,
    output wire [9:0]   look_una,
    output wire [1:0]   look_tag,
    output wire [12:0]  look_tail,
    output reg  [QUEUE_PAIRS-1:0] ready, // state Ready
    output reg  [QUEUE_PAIRS-1:0] error, // state Error

    // A response whose queue pair went away before its turn
    output reg          orphan,

    // Frames delivered to the peer, of the queue pair of the last event
    output reg          delivered,
    output reg  [3:0]   delivered_qp,
    output reg  [15:0]  delivered_frames,
    output reg  [31:0]  delivered_bytes,

    // A READ response in its turn; event_data is there still
    output wire         read_taken,
    output wire [3:0]   read_qp,
    output wire         read_credit,
    output wire         read_starts,   // it is the first of its READ
    output wire         read_ends,
    output wire [21:0]  read_word,     // its offset, in words of 8 bytes

    // Registers
    input  wire         snapshot,
    output reg  [2:0]   stat_cause,
    output reg  [23:0]  stat_una,
    output reg  [23:0]  stat_msn,

    // Counters
    input  wire         sweep,
    input  wire         wipe,
    input  wire [4:0]   sweep_number,
    output wire [63:0]  counted
);

`include "rl_wire.vh"
`include "rl_counts.vh"
`include "rocelink_regs.vh"

    // Local ACK timeout: 4.096 µs·2^n (IBTA vol. 1, 9.7.6.1.3).
    localparam [63:0] ACK_CYCLES = (CLOCK_KHZ * 64'd4096 + 999999) / 1000000;
    localparam [43:0] ACK_UNIT = ACK_CYCLES[43:0];
    // RNR delays are multiples of 10 µs (IBTA vol. 1, table "RNR NAK timer").
    localparam [43:0] RNR_UNIT = (CLOCK_KHZ + 99) / 100;
    localparam [2:0]  RNR_FOR_EVER = 3'd7;

    function [43:0] rnr_delay(input [4:0] code);
        case (code)
            5'd0:  rnr_delay = RNR_UNIT * 65536;
            5'd1:  rnr_delay = RNR_UNIT;
            5'd2:  rnr_delay = RNR_UNIT * 2;
            5'd3:  rnr_delay = RNR_UNIT * 3;
            5'd4:  rnr_delay = RNR_UNIT * 4;
            5'd5:  rnr_delay = RNR_UNIT * 6;
            5'd6:  rnr_delay = RNR_UNIT * 8;
            5'd7:  rnr_delay = RNR_UNIT * 12;
            5'd8:  rnr_delay = RNR_UNIT * 16;
            5'd9:  rnr_delay = RNR_UNIT * 24;
            5'd10: rnr_delay = RNR_UNIT * 32;
            5'd11: rnr_delay = RNR_UNIT * 48;
            5'd12: rnr_delay = RNR_UNIT * 64;
            5'd13: rnr_delay = RNR_UNIT * 96;
            5'd14: rnr_delay = RNR_UNIT * 128;
            5'd15: rnr_delay = RNR_UNIT * 192;
            5'd16: rnr_delay = RNR_UNIT * 256;
            5'd17: rnr_delay = RNR_UNIT * 384;
            5'd18: rnr_delay = RNR_UNIT * 512;
            5'd19: rnr_delay = RNR_UNIT * 768;
            5'd20: rnr_delay = RNR_UNIT * 1024;
            5'd21: rnr_delay = RNR_UNIT * 1536;
            5'd22: rnr_delay = RNR_UNIT * 2048;
            5'd23: rnr_delay = RNR_UNIT * 3072;
            5'd24: rnr_delay = RNR_UNIT * 4096;
            5'd25: rnr_delay = RNR_UNIT * 6144;
            5'd26: rnr_delay = RNR_UNIT * 8192;
            5'd27: rnr_delay = RNR_UNIT * 12288;
            5'd28: rnr_delay = RNR_UNIT * 16384;
            5'd29: rnr_delay = RNR_UNIT * 24576;
            5'd30: rnr_delay = RNR_UNIT * 32768;
            default: rnr_delay = RNR_UNIT * 49152;
        endcase
    endfunction

    localparam [3:0] AT_CHOOSE = 4'd0, AT_READ = 4'd1, AT_COMPUTE = 4'd2, AT_LOCATE = 4'd3, AT_CLIP = 4'd4, AT_WAIT = 4'd5,
                     AT_ACT = 4'd6, AT_FETCH = 4'd7, AT_LOAD = 4'd8;
    localparam [1:0] DO_EVENT = 2'd0, DO_TIMER = 2'd1, DO_SEND = 2'd2;

    reg [3:0]  at;
    reg [1:0]  what;
    reg [3:0]  qp;

    // Which queue pairs may have something to send, and whose turn it is.
    reg [QUEUE_PAIRS-1:0] pending;
    reg [3:0]  turn, pick;
    reg        picked;
    reg        refilled; // the queue pair got a packet since its state was read
    integer    k;

    always @(posedge clk) begin : choose
        integer    j;
        // The first pending one from turn on, else the first of all.
        reg        found_high, found_low;
        reg [3:0]  high, low;
        found_high = 1'b0;
        found_low  = 1'b0;
        high       = 4'd0;
        low        = 4'd0;
        for (j = QUEUE_PAIRS-1; j >= 0; j = j - 1)
            if (pending[j]) begin
                low       = j[3:0];
                found_low = 1'b1;
                if (j[3:0] >= turn) begin
                    high       = j[3:0];
                    found_high = 1'b1;
                end
            end
        pick   <= found_high ? high : low;
        picked <= found_low;
    end

    // What Commit gave.
    wire [53:0] setting_now;
    reg  [53:0] setting;
    wire [43:0] timeout   = setting[43:0];
    wire        timed     = setting[53]; // there is one
    wire [2:0]  retry     = setting[46:44];
    wire [2:0]  rnr_retry = setting[49:47];
    wire [12:0] mtu       = 13'd128 << setting[52:50];
    rl_table #(.WIDTH(54)) settings (
        .clk(clk), .write(init), .waddress(index),
        .wdata({init_timeout != 5'd0, init_mtu, init_rnr_retry, init_retry, ACK_UNIT << init_timeout}),
        .raddress(qp), .rdata(setting_now)
    );

    // What is in the ring.
    wire [9:0]  filled_now;
    reg  [9:0]  ring_end;
    rl_table #(.WIDTH(10)) ends (
        .clk(clk), .write(init || filled), .waddress(init ? index : filled_qp),
        .wdata(init ? 10'd0 : filled_position), .raddress(qp), .rdata(filled_now)
    );

    // The state of a queue pair beside its oldest unacknowledged packet.
    localparam WIDTH = 96 + 3 + 1 + 24 + 45 + 45 + 3 + 3 + 24 + 10 + 10;
    localparam CAUSE = WIDTH - 96 - 3;
    localparam MSN   = CAUSE - 1 - 24;
    wire [WIDTH-1:0] state_now;
    reg  [WIDTH-1:0] state_next;
    reg              state_write;
    reg  [3:0]       state_at;
    reg              pend_set, pend_clear, fails; // for it
    rl_table #(.WIDTH(WIDTH)) states (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(state_next),
        .raddress(qp), .rdata(state_now)
    );

    reg  [9:0]  una, cursor, sent;
    reg  [23:0] una_psn, sent_psn; // of the packet there
    reg  [2:0]  retries, rnr_retries;
    reg         timer_on, hold_on;
    reg  [43:0] timer, hold;
    reg  [23:0] msn;
    reg         rnr_marked; // the oldest packet's message has been counted
    reg  [2:0]  cause;
    reg  [95:0] sums;
    reg  [1:0]  tag;
    reg  [12:0] tail;

    localparam OLDEST = 24 + 13 + 2 + 10;
    reg  [OLDEST-1:0] una_next;
    wire [OLDEST-1:0] una_now, look;
    rl_table #(.WIDTH(OLDEST)) oldest (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(una_next), .raddress(qp), .rdata(una_now)
    );
    rl_table #(.WIDTH(OLDEST-24)) oldest_copy (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(una_next[OLDEST-25:0]), .raddress(look_qp),
        .rdata(look[OLDEST-25:0])
    );
    assign look[OLDEST-1 -: 24] = 24'd0;
    assign look_una  = look[9:0];
    assign look_tag  = look[11:10];
    assign look_tail = look[24:12];

    // The oldest READ that was sent.
    localparam READ = 5 + 10 + 24 + 24 + 25 + 25;
    wire [READ-1:0] read_now;
    reg  [READ-1:0] read_next;
    reg             read_write;
    rl_table #(.WIDTH(READ)) reads (
        .clk(clk), .write(state_write || read_write), .waddress(state_at), .wdata(read_next), .raddress(qp), .rdata(read_now)
    );
    reg         reading;  // there is one
    reg         credit;   // it is for the Credit word
    reg         fresh;    // nothing came since it was last asked for
    reg         started;  // its first response came
    reg         repeated; // it is asked for again where the responses have a gap
    reg  [9:0]  at_position;
    reg  [23:0] expected; // PSN of the next response
    reg  [23:0] read_end; // PSN behind the last
    reg  [24:0] left, offset; // bytes to come, and that came

    // The event. One of a session that has ended is none.
    reg  [1:0]  epochs [0:QUEUE_PAIRS-1];
    reg  [1:0]  epoch, kind;
    reg  [4:0]  code;
    reg  [23:0] event_psn, event_msn;
    wire [12:0] length = event_data[RL_EVENT_LENGTH +: 13];
    wire        starts = code[RL_CODE_STARTS], ends_read = code[RL_CODE_ENDS];
    wire        acks   = kind == RL_KIND_ACK; // for its PSN too, the others for those before

    // Computed in AT_COMPUTE.
    reg  [9:0]  inflight; // packets sent and not acknowledged
    reg  [9:0]  behind;   // cursor - una
    reg         lost;     // the carries
    reg  [9:0]  inflight_less, behind_less; // and without the one that an ACK is for
    reg  [23:0] distance; // event_psn - una_psn
    reg  [23:0] reach;    // how much of that is in flight
    reg  [23:0] read_reach, ahead;
    reg  [9:0]  leading;   // packets before the READ
    reg         longer, fits_mtu, fits_left;
    reg         sends;    // there is a packet at the cursor, and it leaves
    reg         onward;   // there is one behind it
    reg         resends, repeats; // it left before, it is the READ
    reg         arms;     // and starts the timer
    reg         live;     // the queue pair may send
    reg         timed_out, expires, held_out; // the timer's time is over, with packets in flight
    reg  [43:0] deadline, hold_until;
    reg         retry_spent, retry_none, rnr_spent, rnr_none, rnr_counts;
    reg  [2:0]  code_cause;
    reg  [7:0]  tick;
    reg  [3:0]  scan;
    reg         up;

    // Computed in AT_LOCATE, AT_CLIP and AT_WAIT, and 0 without an event.
    reg         known;    // the event's PSN is one of those in flight
    reg         answers;  // as no READ response,
    reg         halts, again, fatal; // as RNR NAK, as a NAK for which packets are sent again, for which not
    reg         past;     // it is behind the READ
    reg         exact, early, fits;
    reg  [9:0]  number;   // packets that the event acknowledges
    reg         moves;    // there are such,
    reg         rest;     // and others in flight
    reg         caught;   // the cursor was not beyond them
    reg         read_bad, read_late, read_gap, takes, reread, fetches;
    wire        located = up && distance < reach;

    // Decided in AT_ACT, two LUT levels deep: whether packets are sent again, and
    // how that ends.
    wire        stops = halts && !(hold_on && !moves && (caught || reread)); // not a copy of the one that we wait for
    wire        tired = expires || again && !caught && !reread;              // nor have we gone back already
    wire        tired_out = tired && (moves ? retry_none : retry_spent);
    wire        rnr_out   = stops && (moves ? rnr_none : rnr_spent);
    wire        fail  = tired_out || rnr_out || fatal || read_bad;
    wire        back  = stops || tired;
    wire        kills = stops || tired_out || fatal || read_bad;
    wire        wakes = (moves || takes) && hold_on || reread || held_out || tired;
    wire        sends_new = sends && !resends;
    wire        begins    = sends_new && !reading && done_data[RL_DONE_READ];
    wire        more      = sends && onward || live && refilled; // packets to send
    wire [9:0]  new_una   = una + number;
    wire [2:0]  fail_cause = read_bad ? RL_CORE_STAT_STATE_CAUSE_BAD_RESPONSE[2:0] : fatal ? code_cause :
                             halts ? RL_CORE_STAT_STATE_CAUSE_RNR_RETRY_EXCEEDED[2:0] :
                             RL_CORE_STAT_STATE_CAUSE_RETRY_EXCEEDED[2:0];
    wire        inc_stale = what == DO_EVENT && up && !known || answers && acks && !moves || read_late;
    wire        inc_acks  = answers && acks && moves;
    wire        inc_rnr_messages = stops && (moves || !rnr_marked);

    reg  [9:0]  new_cursor, new_sent;
    reg  [23:0] new_una_psn, new_sent_psn;
    reg  [2:0]  new_retries, new_rnr_retries;
    reg         new_timer_on, new_hold_on, new_marked;
    reg  [43:0] new_timer, new_hold;
    reg  [23:0] new_msn;
    reg  [12:0] new_tail;
    reg  [95:0] new_sums;
    reg         new_reading, new_credit, new_fresh, new_started, new_repeated;
    reg  [9:0]  new_position;
    reg  [23:0] new_expected, new_end;
    reg  [24:0] new_left, new_offset;

    always @* begin
        new_una_psn = moves ? done_data[RL_DONE_PSN +: 24] : una_psn;
        new_tail    = moves ? done_data[RL_DONE_TAIL +: 13] : tail;
        new_sums    = moves ? done_data[RL_DONE_MESSAGES +: 96] : sums;
        new_marked  = stops || rnr_marked && !moves;
        new_msn     = (answers || takes && (starts || ends_read)) ? event_msn : msn;

        new_cursor = cursor + {9'd0, sends};
        if (back || caught || reread)
            new_cursor = new_una;
        new_sent     = sent + {9'd0, sends_new};
        new_sent_psn = sends_new ? done_data[RL_DONE_PSN +: 24] : sent_psn;

        new_retries = retries;
        if (moves || takes || stops)
            new_retries = 3'd0;
        if (tired)
            new_retries = moves ? 3'd1 : retries + 3'd1;
        new_rnr_retries = rnr_retries;
        if (moves || takes)
            new_rnr_retries = 3'd0;
        if (stops && rnr_counts)
            new_rnr_retries = moves ? 3'd1 : rnr_retries + 3'd1;

        new_timer    = (moves || takes || arms) ? deadline : timer;
        new_timer_on = ((moves || takes) ? timed && rest : timer_on || arms) &&
                       !(reread && !moves || timed_out || back || fatal || read_bad);
        new_hold     = stops ? hold_until : hold;
        new_hold_on  = (stops || hold_on && !(moves || takes || held_out)) && !fail;

        // The oldest READ. Where a response is missing it is asked for again, once.
        new_reading  = begins || (takes ? longer : reading);
        new_credit   = begins ? done_data[RL_DONE_CREDIT] : credit;
        new_fresh    = begins || sends && repeats || fresh && !takes;
        new_started  = !begins && (started || takes);
        new_repeated = !begins && !takes && !expires && (repeated || reread);
        new_position = begins ? cursor : at_position;
        new_expected = begins ? sent_psn : expected + {23'd0, takes};
        new_end      = begins ? done_data[RL_DONE_PSN +: 24] : read_end;
        new_left     = begins ? done_data[RL_DONE_LENGTH +: 25] : takes ? left - {12'd0, mtu} : left;
        new_offset   = begins ? 25'd0 : takes ? offset + {12'd0, mtu} : offset;
    end

    reg        event_done;
    reg [3:0]  event_qp;
    reg [15:0] acked_messages;
    reg [31:0] acked_bytes;

    assign event_pop   = at == AT_ACT && what == DO_EVENT;
    assign read_taken  = at == AT_ACT && takes;
    assign read_qp     = qp;
    assign read_credit = credit;
    assign read_starts = !started;
    assign read_ends   = !longer;
    assign read_word   = offset[24:3];

    always @(posedge clk) begin
        send_valid   <= 1'b0;
        state_write  <= 1'b0;
        read_write   <= 1'b0;
        event_done   <= 1'b0;
        orphan       <= 1'b0;
        delivered    <= 1'b0;
        paused       <= pause && at == AT_CHOOSE && !state_write && !read_write;
        tick         <= tick[7] ? tick : tick + 8'd1;

        // Outside the machine a fill may make work at any time.
        if (filled)
            for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                if (filled_qp == k[3:0])
                    pending[k] <= 1'b1;
        if (filled && filled_qp == qp)
            refilled <= 1'b1;

        // What AT_ACT decided for the queue pair.
        pend_set   <= 1'b0;
        pend_clear <= 1'b0;
        fails      <= 1'b0;
        for (k = 0; k < QUEUE_PAIRS; k = k + 1)
            if (state_at == k[3:0]) begin
                if (pend_set)
                    pending[k] <= 1'b1;
                if (pend_clear && !(filled && filled_qp == state_at))
                    pending[k] <= 1'b0;
                if (fails) begin
                    ready[k] <= 1'b0;
                    error[k] <= 1'b1;
                end
            end

        case (at)
            AT_CHOOSE:
                if (!pause) begin
                    epoch     <= event_data[RL_EVENT_EPOCH +: 2];
                    kind      <= event_data[RL_EVENT_KIND +: 2];
                    code      <= event_data[RL_EVENT_CODE +: 5];
                    event_psn <= event_data[RL_EVENT_PSN +: 24];
                    event_msn <= event_data[RL_EVENT_MSN +: 24];
                    if (event_valid) begin
                        at        <= AT_READ;
                        what      <= DO_EVENT;
                        qp        <= event_data[RL_EVENT_QP +: 4];
                    end else if (!enable) begin
                        // What was received before is still dealt with.
                    end else if (tick[7] || !picked || !can_send) begin
                        at   <= AT_READ;
                        what <= DO_TIMER;
                        qp   <= scan;
                        scan <= (scan == QUEUE_PAIRS[3:0] - 4'd1) ? 4'd0 : scan + 4'd1;
                        tick <= 8'd0;
                    end else begin
                        at   <= AT_READ;
                        what <= DO_SEND;
                        qp   <= pick;
                        turn <= pick + 4'd1;
                    end
                end
            AT_READ: begin
                at <= AT_COMPUTE;
                {sums, cause, rnr_marked, msn, hold, hold_on, timer, timer_on, rnr_retries, retries, sent_psn, sent, cursor}
                         <= state_now;
                {una_psn, tail, tag, una} <= una_now;
                {reading, credit, fresh, started, repeated, at_position, expected, read_end, left, offset} <= read_now;
                // Of a packet to send.
                done_address <= {qp, state_now[7:0]};
                setting  <= setting_now;
                ring_end <= filled_now;
                refilled <= filled && filled_qp == qp;
                up       <= 1'b0;
                for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                    if (qp == k[3:0] && ready[k] && (what != DO_EVENT || epochs[k] == epoch))
                        up <= 1'b1;
            end
            AT_COMPUTE: begin
                at          <= (what == DO_EVENT) ? AT_LOCATE : AT_ACT;
                inflight    <= sent - una;
                behind      <= cursor - una;
                // The ACK's own packet goes in as the carry.
                {inflight_less, lost} <= {sent, 1'b1} + {~una, !acks};
                {behind_less, lost}   <= {cursor, 1'b1} + {~una, !acks};
                distance    <= event_psn - una_psn;
                reach       <= sent_psn - una_psn;
                read_reach  <= read_end - una_psn;
                ahead       <= event_psn - expected;
                leading     <= at_position - una;
                longer      <= left > {12'd0, mtu};
                fits_mtu    <= length == mtu;
                fits_left   <= {12'd0, length} == left;
                live        <= up && !hold_on;
                sends       <= what == DO_SEND && up && !hold_on && cursor != ring_end;
                arms        <= what == DO_SEND && up && !hold_on && cursor != ring_end && timed && !timer_on;
                onward      <= cursor + 10'd1 != ring_end;
                resends     <= cursor != sent;
                repeats     <= reading && cursor == at_position;
                timed_out   <= timer_on && now - timer < 44'h80000000000 && what == DO_TIMER && up;
                expires     <= timer_on && now - timer < 44'h80000000000 && what == DO_TIMER && up && sent != una;
                held_out    <= hold_on && now - hold < 44'h80000000000 && what == DO_TIMER && up;
                deadline    <= now + timeout;
                hold_until  <= now + rnr_delay(code);
                retry_spent <= retries >= retry;
                retry_none  <= retry == 3'd0;
                rnr_counts  <= rnr_retry != RNR_FOR_EVER;
                rnr_spent   <= rnr_retry != RNR_FOR_EVER && rnr_retries >= rnr_retry;
                rnr_none    <= rnr_retry == 3'd0;
                case (code)
                    5'd1:    code_cause <= RL_CORE_STAT_STATE_CAUSE_REMOTE_INVALID_REQUEST[2:0];
                    5'd2:    code_cause <= RL_CORE_STAT_STATE_CAUSE_REMOTE_ACCESS[2:0];
                    default: code_cause <= RL_CORE_STAT_STATE_CAUSE_REMOTE_OPERATIONAL[2:0];
                endcase
                number      <= 10'd0;
                {known, answers, halts, again, fatal, moves, rest, caught}      <= 8'd0;
                {read_bad, read_late, read_gap, takes, reread, fetches} <= 6'd0;
                if (what == DO_EVENT)
                    done_address <= {qp, una[7:0] + event_psn[7:0] - una_psn[7:0] - {7'd0, !acks}};
            end
            AT_LOCATE: begin
                // Without a READ in flight the position follows from the PSN.
                at       <= (reading || kind == RL_KIND_READ) ? AT_CLIP : AT_ACT;
                known    <= located;
                answers  <= located && kind != RL_KIND_READ;
                halts    <= located && kind == RL_KIND_RNR;
                again    <= located && kind == RL_KIND_NAK && code == 5'd0;
                fatal    <= located && kind == RL_KIND_NAK && code != 5'd0;
                past     <= located && reading && {1'b0, distance} + {24'd0, acks} >= {1'b0, read_reach};
                number   <= distance[9:0] + {9'd0, acks};
                if (!located)
                    number <= 10'd0;
                moves    <= located && (acks || distance[9:0] != 10'd0);
                rest     <= located && distance[9:0] != inflight_less;
                caught   <= located && (behind_less[9] || behind_less <= distance[9:0]);
                exact    <= ahead == 24'd0;
                early    <= ahead[23];
                fits     <= longer ? fits_mtu && !ends_read && (starts ? fresh : started) :
                                     fits_left && ends_read && (starts ? fresh : started);
            end
            AT_CLIP: begin
                moves    <= 1'b0;
                rest     <= 1'b1;
                caught   <= known && behind == 10'd0;
                read_bad <= known && kind == RL_KIND_READ &&
                            (!reading || credit && !exact || code[RL_CODE_REFUSED] || exact && !fits);
                if (kind != RL_KIND_READ) begin
                    // Nothing behind a READ is acknowledged before its data came.
                    at     <= AT_WAIT;
                    reread <= past && !repeated;
                    number <= past ? leading : credit ? number : 10'd0;
                    if (past)
                        done_address <= {qp, at_position[7:0] - 8'd1};
                end else begin
                    at     <= AT_ACT;
                    number <= 10'd0;
                    if (known && reading && !code[RL_CODE_REFUSED]) begin
                        if (exact) begin
                            // All before the READ is acknowledged. Before a
                            // frame's there is nothing.
                            if (credit || !longer)
                                at       <= AT_WAIT;
                            takes        <= fits;
                            number       <= leading + {9'd0, fits && !longer};
                            done_address <= {qp, at_position[7:0] - {7'd0, !(fits && !longer)}};
                        end else if (!credit) begin
                            read_late <= early;
                            read_gap  <= !early;
                            reread    <= !early && !repeated;
                        end
                    end
                end
            end
            AT_WAIT: begin
                at      <= AT_ACT;
                moves   <= number != 10'd0;
                rest    <= number != inflight;
                caught  <= known && behind <= number;
                // More READs are on their way: the next one's entry.
                fetches <= takes && !longer && !credit && number != inflight;
            end
            AT_ACT: begin
                at          <= AT_CHOOSE;
                state_write <= up;
                state_at    <= qp;
                state_next  <= {new_sums, fail ? fail_cause : cause, new_marked, new_msn, new_hold, new_hold_on,
                                new_timer, new_timer_on, new_rnr_retries, new_retries, new_sent_psn, new_sent, new_cursor};
                una_next    <= {new_una_psn, new_tail, tag + {1'b0, takes}, new_una};
                read_next   <= {new_reading, new_credit, new_fresh, new_started, new_repeated, new_position, new_expected,
                                new_end, new_left, new_offset};
                send_valid    <= sends;
                send_qp       <= qp;
                send_position <= cursor[7:0];
                send_read     <= repeats;
                send_psn      <= expected;
                send_offset   <= offset;
                send_left     <= left;
                event_done    <= up;
                orphan        <= what == DO_EVENT && !up;
                delivered        <= moves && done_data[RL_DONE_FRAMES +: 16] != sums[48 +: 16];
                delivered_qp     <= qp;
                delivered_frames <= done_data[RL_DONE_FRAMES +: 16] - sums[48 +: 16];
                delivered_bytes  <= done_data[RL_DONE_FRAMEBYTES +: 32] - sums[64 +: 32];
                if (fetches) begin
                    at           <= AT_FETCH;
                    done_address <= {qp, new_una[7:0]};
                end
                fails      <= fail;
                pend_set   <= wakes && !kills || more && what == DO_SEND;
                // A turn without work ends in a turn less.
                pend_clear <= kills || !more && what == DO_SEND && !(filled && filled_qp == qp);
            end
            AT_FETCH:
                at <= AT_LOAD;
            default: begin // AT_LOAD
                at         <= AT_CHOOSE;
                read_write <= 1'b1;
                read_next  <= {5'b10100, una_next[9:0], una_next[OLDEST-1 -: 24], done_data[RL_DONE_PSN +: 24],
                               done_data[RL_DONE_LENGTH +: 25], 25'd0};
            end
        endcase

        // Commands, while the machine stands still.
        if (init || drop) begin
            state_write <= 1'b1;
            state_at    <= index;
            state_next  <= {96'd0, 3'd0, 1'b0, 24'd0, 44'd0, 1'b0, 44'd0, 1'b0, 3'd0, 3'd0, init ? init_psn : 24'd0, 20'd0};
            una_next    <= {init ? init_psn : 24'd0, 25'd0};
            read_next   <= {READ{1'b0}};
            for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                if (index == k[3:0]) begin
                    pending[k] <= 1'b0;
                    ready[k]   <= init;
                    if (init)
                        epochs[k] <= init_epoch;
                    error[k]   <= 1'b0;
                end
        end
        if (pause && at == AT_CHOOSE)
            qp <= index;
        if (snapshot) begin
            stat_cause <= state_now[CAUSE +: 3];
            stat_msn   <= state_now[MSN +: 24];
            // The oldest PSN of a READ is that of the response that it waits for.
            stat_una   <= (read_now[READ-1] && read_now[98 +: 10] == una_now[9:0]) ? read_now[74 +: 24] :
                          una_now[OLDEST-1 -: 24];
        end

        if (rst) begin
            at          <= AT_CHOOSE;
            pending     <= 0;
            ready       <= 0;
            error       <= 0;
            turn        <= 4'd0;
            scan        <= 4'd0;
            tick        <= 8'd0;
            state_write <= 1'b0;
            read_write  <= 1'b0;
            send_valid  <= 1'b0;
            event_done  <= 1'b0;
            delivered   <= 1'b0;
            pend_set    <= 1'b0;
            pend_clear  <= 1'b0;
            fails       <= 1'b0;
            paused      <= 1'b0;
        end
    end

    // Counters. What happened is known one cycle after AT_ACT, and stands until the
    // next event is there, four cycles later at least, five if it is a response. Of
    // these cycles each has its counter: messages, bytes, packets, what it was; and the fifth,
    // messages that met an RNR NAK, which only responses have.
    reg  [8:0] acked_packets;
    reg  [4:0] event_number;
    reg        event_counts, event_moves, event_rnr;
    reg  [2:0] slot;  // one-hot, from the second cycle on
    reg  [3:0] late_qp;
    reg        late_rnr;
    always @(posedge clk) begin
        if (at == AT_ACT) begin
            acked_packets  <= number[8:0];
            acked_messages <= done_data[RL_DONE_MESSAGES +: 16] - sums[0 +: 16];
            acked_bytes    <= done_data[RL_DONE_BYTES +: 32] - sums[16 +: 32];
            event_moves    <= moves;
            event_rnr      <= inc_rnr_messages;
            event_counts   <= sends || expires || again || halts || fatal || inc_acks || inc_stale || takes || read_gap;
            event_number   <= (sends_new ? RL_COUNT_PACKETS_SENT : 5'd0) |
                              ((sends && resends) ? RL_COUNT_PACKETS_RESENT : 5'd0) |
                              (expires ? RL_COUNT_TIMEOUTS : 5'd0) | (again ? RL_COUNT_SEQUENCE_NAKS : 5'd0) |
                              (halts ? RL_COUNT_RNR_NAKS : 5'd0) | (fatal ? RL_COUNT_FATAL_NAKS : 5'd0) |
                              (inc_acks ? RL_COUNT_ACKS_RECEIVED : 5'd0) | (inc_stale ? RL_COUNT_STALE_ACKS : 5'd0) |
                              (takes ? RL_COUNT_READ_RESPONSES : 5'd0) | (read_gap ? RL_COUNT_READ_GAPS : 5'd0);
        end
        slot     <= rst ? 3'd0 : {slot[1:0], event_done};
        late_qp  <= event_qp;
        late_rnr <= event_rnr && slot[2];
        if (at == AT_ACT)
            event_qp <= qp;
    end

    reg         count;
    reg  [4:0]  count_number;
    reg  [31:0] count_add;
    always @* begin
        count        = late_rnr;
        count_number = RL_COUNT_RNR_MESSAGES;
        count_add    = 32'd1;
        if (event_done && event_moves) begin
            count        = 1'b1;
            count_number = RL_COUNT_MESSAGES_ACKED;
            count_add    = {16'd0, acked_messages};
        end
        if (slot[0] && event_moves) begin
            count        = 1'b1;
            count_number = RL_COUNT_BYTES_ACKED;
            count_add    = acked_bytes;
        end
        if (slot[1] && event_moves) begin
            count        = 1'b1;
            count_number = RL_COUNT_PACKETS_ACKED;
            count_add    = {23'd0, acked_packets};
        end
        if (slot[2]) begin
            count        = event_counts;
            count_number = event_number;
            count_add    = 32'd1;
        end
    end
    rl_counts #(.QUEUE_PAIRS(QUEUE_PAIRS)) counts (
        .clk(clk), .enable(count), .qp(late_rnr ? late_qp : event_qp), .number(count_number), .add(count_add),
        .sweep(sweep), .wipe(wipe), .sweep_qp(index), .sweep_number(sweep_number), .value(counted)
    );

endmodule

`default_nettype wire
