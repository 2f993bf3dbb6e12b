// The requester's state: what is sent next, what is acknowledged, timers.
//
// One event is dealt with at a time, four cycles each: a response before a
// timer's turn before a packet to send. So this is the only writer of the oldest
// unacknowledged PSN and of everything else here, and going back is moving one
// pointer. PSNs are the pointers: unacknowledged ≤ cursor ≤ sent, filled, modulo
// 2^24, and a window is far smaller than half of that.
//
// An acknowledgement of many packets takes no longer than of one: the entry of
// the last PSN holds the sums of all before it.
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

    // Packets in the ring: psn is the next one's
    input  wire         filled,
    input  wire [3:0]   filled_qp,
    input  wire [23:0]  filled_psn,

    // Responses
    input  wire         event_valid,
    input  wire [60:0]  event_data,
    output reg          event_pop,

    // Sums up to a PSN, one cycle after its address
    output reg  [11:0]  done_address,
    input  wire [108:0] done_data,

    // Packets to send
    input  wire         can_send,
    output reg          send_valid,
    output reg  [3:0]   send_qp,
    output reg  [23:0]  send_psn,

    // Oldest unacknowledged PSN and where the ring is free up to, for who fills it
    input  wire [3:0]   look_qp,
    output wire [23:0]  look_una,
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

    // Registers
    input  wire         snapshot,
    output reg  [2:0]   stat_cause,
    output reg  [23:0]  stat_una,
    output reg  [23:0]  stat_msn,
    output wire [63:0]  stat_messages_acked,
    output wire [63:0]  stat_bytes_acked,
    output wire [63:0]  stat_packets_sent,
    output wire [63:0]  stat_packets_resent,
    output wire [63:0]  stat_packets_acked,
    output wire [63:0]  stat_timeouts,
    output wire [63:0]  stat_sequence_naks,
    output wire [63:0]  stat_rnr_naks,
    output wire [63:0]  stat_rnr_messages,
    output wire [63:0]  stat_fatal_naks,
    output wire [63:0]  stat_acks_received,
    output wire [63:0]  stat_stale_acks
);

`include "rl_wire.vh"
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

    localparam [1:0] AT_CHOOSE = 2'd0, AT_READ = 2'd1, AT_COMPUTE = 2'd2, AT_ACT = 2'd3;
    localparam [1:0] DO_EVENT = 2'd0, DO_TIMER = 2'd1, DO_SEND = 2'd2;

    reg [1:0]  at, what;
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
    wire [49:0] setting_now;
    reg  [49:0] setting;
    wire [43:0] timeout   = setting[43:0]; // 0: none
    wire [2:0]  retry     = setting[46:44];
    wire [2:0]  rnr_retry = setting[49:47];
    rl_table #(.WIDTH(50)) settings (
        .clk(clk), .write(init), .waddress(index),
        .wdata({init_rnr_retry, init_retry, (init_timeout == 5'd0) ? 44'd0 : ACK_UNIT << init_timeout}),
        .raddress(qp), .rdata(setting_now)
    );

    // What is in the ring.
    wire [23:0] filled_now;
    reg  [23:0] ring_end;
    rl_table #(.WIDTH(24)) ends (
        .clk(clk), .write(init || filled), .waddress(init ? index : filled_qp),
        .wdata(init ? init_psn : filled_psn), .raddress(qp), .rdata(filled_now)
    );

    // The state of a queue pair beside its oldest unacknowledged PSN.
    localparam WIDTH = 270;
    wire [WIDTH-1:0] state_now;
    reg  [WIDTH-1:0] state_next;
    reg              state_write;
    reg  [3:0]       state_at;
    rl_table #(.WIDTH(WIDTH)) states (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(state_next),
        .raddress(qp), .rdata(state_now)
    );

    reg  [23:0] una, cursor, sent;
    reg  [3:0]  retries, rnr_retries;
    reg         timer_on, hold_on;
    reg  [43:0] timer, hold;
    reg  [23:0] msn;
    reg         rnr_marked; // the oldest packet's message has been counted
    reg  [2:0]  cause;
    reg  [95:0] sums;

    reg  [36:0] una_next;
    wire [36:0] una_now;
    rl_table #(.WIDTH(37)) oldest (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(una_next), .raddress(qp), .rdata(una_now)
    );
    wire [36:0] look;
    rl_table #(.WIDTH(37)) oldest_copy (
        .clk(clk), .write(state_write), .waddress(state_at), .wdata(una_next), .raddress(look_qp), .rdata(look)
    );
    assign look_una  = look[23:0];
    assign look_tail = look[36:24];
    reg  [12:0] tail;

    // The event. One of a session that has ended is none.
    reg  [1:0]  epochs [0:QUEUE_PAIRS-1];
    reg  [1:0]  epoch, kind;
    reg  [4:0]  code;
    reg  [23:0] event_psn, event_msn;
    wire [1:0]  kind_now  = event_data[RL_EVENT_KIND +: 2];
    wire [23:0] psn_now   = event_data[RL_EVENT_PSN +: 24];

    // Computed in AT_COMPUTE.
    reg  [23:0] inflight; // packets sent and not acknowledged
    reg  [23:0] behind;   // cursor - una
    reg  [23:0] number;   // packets that the event acknowledges
    reg         known;    // its PSN is one of those in flight
    reg         work;     // there is a packet at the cursor
    reg         timed_out, held_out;
    reg  [43:0] deadline, hold_until;
    reg  [108:0] done;
    reg  [7:0]  tick;
    reg  [3:0]  scan;
    reg         up, tired_next;

    // Decided in AT_ACT.
    reg         moved, back, fail, send, resend, more;
    reg  [2:0]  fail_cause;
    reg  [23:0] new_una, new_cursor, new_sent;
    reg  [3:0]  new_retries, new_rnr_retries;
    reg         new_timer_on, new_hold_on, new_marked;
    reg  [43:0] new_timer, new_hold;
    reg  [23:0] new_msn;
    reg  [12:0] new_tail;
    reg  [95:0] new_sums;
    reg         inc_timeouts, inc_sequence, inc_rnr, inc_rnr_messages, inc_fatal, inc_acks, inc_stale;
    reg         tired;

    always @* begin
        moved           = 1'b0;
        back            = 1'b0;
        fail            = 1'b0;
        send            = 1'b0;
        resend          = 1'b0;
        tired           = 1'b0;
        fail_cause      = RL_CORE_STAT_STATE_CAUSE_NONE[2:0];
        new_una         = una;
        new_cursor      = cursor;
        new_sent        = sent;
        new_retries     = retries;
        new_rnr_retries = rnr_retries;
        new_timer_on    = timer_on;
        new_timer       = timer;
        new_hold_on     = hold_on;
        new_hold        = hold;
        new_marked      = rnr_marked;
        new_msn         = msn;
        new_tail        = tail;
        new_sums        = sums;
        inc_timeouts    = 1'b0;
        inc_sequence    = 1'b0;
        inc_rnr         = 1'b0;
        inc_rnr_messages = 1'b0;
        inc_fatal       = 1'b0;
        inc_acks        = 1'b0;
        inc_stale       = 1'b0;
        if (up)
            case (what)
                DO_EVENT:
                    if (!known)
                        inc_stale = 1'b1;
                    else if (kind == RL_KIND_READ) begin
                        fail       = 1'b1;
                        fail_cause = RL_CORE_STAT_STATE_CAUSE_BAD_RESPONSE[2:0];
                    end else begin
                        new_msn = event_msn;
                        moved   = number != 24'd0;
                        if (moved) begin
                            new_una         = una + number;
                            new_tail        = done[RL_DONE_TAIL +: 13];
                            new_sums        = done[RL_DONE_MESSAGES +: 96];
                            new_retries     = 4'd0;
                            new_rnr_retries = 4'd0;
                            new_hold_on     = 1'b0;
                            new_marked      = 1'b0;
                            if (behind < number)
                                new_cursor = una + number;
                            new_timer_on = timeout != 44'd0 && inflight != number;
                            new_timer    = deadline;
                        end
                        case (kind)
                            RL_KIND_ACK: inc_acks = 1'b1;
                            RL_KIND_RNR: begin
                                inc_rnr = 1'b1;
                                // Unless it is a copy of the one that we wait for.
                                if (moved || !hold_on || behind != 24'd0) begin
                                    inc_rnr_messages = !new_marked;
                                    new_marked       = 1'b1;
                                    new_retries      = 4'd0;
                                    if (rnr_retry != RNR_FOR_EVER)
                                        new_rnr_retries = new_rnr_retries + 4'd1;
                                    if (new_rnr_retries > {1'b0, rnr_retry}) begin
                                        fail       = 1'b1;
                                        fail_cause = RL_CORE_STAT_STATE_CAUSE_RNR_RETRY_EXCEEDED[2:0];
                                    end
                                    back        = 1'b1;
                                    new_hold_on = 1'b1;
                                    new_hold    = hold_until;
                                end
                            end
                            default:
                                if (code == 5'd0) begin
                                    inc_sequence = 1'b1;
                                    // Unless we went back already and have not
                                    // sent since.
                                    tired = new_cursor != new_una;
                                end else begin
                                    inc_fatal = 1'b1;
                                    fail      = 1'b1;
                                    case (code)
                                        5'd1:    fail_cause = RL_CORE_STAT_STATE_CAUSE_REMOTE_INVALID_REQUEST[2:0];
                                        5'd2:    fail_cause = RL_CORE_STAT_STATE_CAUSE_REMOTE_ACCESS[2:0];
                                        default: fail_cause = RL_CORE_STAT_STATE_CAUSE_REMOTE_OPERATIONAL[2:0];
                                    endcase
                                end
                        endcase
                    end
                DO_TIMER: begin
                    if (held_out)
                        new_hold_on = 1'b0;
                    if (timed_out) begin
                        new_timer_on = 1'b0;
                        if (inflight != 24'd0) begin
                            inc_timeouts = 1'b1;
                            tired        = 1'b1;
                        end
                    end
                end
                default:
                    if (work && !hold_on) begin
                        send       = 1'b1;
                        resend     = behind != inflight;
                        new_cursor = cursor + 24'd1;
                        if (!resend)
                            new_sent = sent + 24'd1;
                        if (!timer_on && timeout != 44'd0) begin
                            new_timer_on = 1'b1;
                            new_timer    = deadline;
                        end
                    end
            endcase
        if (tired) begin
            new_retries = new_retries + 4'd1;
            back        = 1'b1;
            if (new_retries > {1'b0, retry}) begin
                fail       = 1'b1;
                fail_cause = RL_CORE_STAT_STATE_CAUSE_RETRY_EXCEEDED[2:0];
            end
        end
        if (back) begin
            new_cursor   = new_una;
            new_timer_on = 1'b0;
        end
        if (fail) begin
            new_timer_on = 1'b0;
            new_hold_on  = 1'b0;
        end
        // Is there anything to send after this?
        more = up && !fail && !new_hold_on && new_cursor != ring_end;
    end

    reg        event_done;
    reg [15:0] acked_messages;
    reg [31:0] acked_bytes;

    always @(posedge clk) begin
        event_pop    <= 1'b0;
        send_valid   <= 1'b0;
        state_write  <= 1'b0;
        event_done   <= 1'b0;
        orphan       <= 1'b0;
        delivered    <= 1'b0;
        paused       <= pause && at == AT_CHOOSE && !state_write;
        tick         <= tick[7] ? tick : tick + 8'd1;

        // Outside the machine a fill may make work at any time.
        if (filled)
            for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                if (filled_qp == k[3:0])
                    pending[k] <= 1'b1;
        if (filled && filled_qp == qp)
            refilled <= 1'b1;

        case (at)
            AT_CHOOSE:
                if (!pause) begin
                    epoch     <= event_data[RL_EVENT_EPOCH +: 2];
                    kind      <= kind_now;
                    code      <= event_data[RL_EVENT_CODE +: 5];
                    event_psn <= psn_now;
                    event_msn <= event_data[RL_EVENT_MSN +: 24];
                    // An ACK is for its PSN too, a NAK for those before.
                    done_address <= {event_data[RL_EVENT_QP +: 4],
                                     (kind_now == RL_KIND_ACK) ? psn_now[7:0] : psn_now[7:0] - 8'd1};
                    if (event_valid && !event_pop) begin
                        at        <= AT_READ;
                        what      <= DO_EVENT;
                        qp        <= event_data[RL_EVENT_QP +: 4];
                        event_pop <= 1'b1;
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
                {sums, cause, rnr_marked, msn, hold, hold_on, timer, timer_on, rnr_retries, retries, sent, cursor}
                         <= state_now[WIDTH-1:0];
                {tail, una} <= una_now;
                setting  <= setting_now;
                ring_end <= filled_now;
                refilled <= filled && filled_qp == qp;
                up       <= 1'b0;
                for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                    if (qp == k[3:0])
                        up <= ready[k] && (what != DO_EVENT || epochs[k] == epoch);
            end
            AT_COMPUTE: begin
                at         <= AT_ACT;
                inflight   <= sent - una;
                behind     <= cursor - una;
                number     <= event_psn - una + {23'd0, kind == RL_KIND_ACK};
                known      <= (event_psn - una) < (sent - una);
                work       <= cursor != ring_end;
                timed_out  <= timer_on && now - timer < 44'h80000000000;
                held_out   <= hold_on && now - hold < 44'h80000000000;
                deadline   <= now + timeout;
                hold_until <= now + rnr_delay(code);
                done       <= done_data;
            end
            AT_ACT: begin
                at          <= AT_CHOOSE;
                state_write <= up;
                state_at    <= qp;
                state_next  <= {new_sums, fail ? fail_cause : cause, new_marked, new_msn, new_hold, new_hold_on,
                                new_timer, new_timer_on, new_rnr_retries, new_retries, new_sent, new_cursor};
                una_next    <= {new_tail, new_una};
                send_valid  <= send;
                send_qp     <= qp;
                send_psn    <= cursor;
                event_done  <= up;
                orphan      <= what == DO_EVENT && !up;
                delivered        <= moved && new_sums[48 +: 16] != sums[48 +: 16];
                delivered_qp     <= qp;
                delivered_frames <= new_sums[48 +: 16] - sums[48 +: 16];
                delivered_bytes  <= new_sums[64 +: 32] - sums[64 +: 32];
                for (k = 0; k < QUEUE_PAIRS; k = k + 1)
                    if (qp == k[3:0]) begin
                        if (!(filled && filled_qp == qp))
                            pending[k] <= more || refilled && up && !fail && !new_hold_on;
                        if (fail) begin
                            ready[k] <= 1'b0;
                            error[k] <= 1'b1;
                        end
                    end
            end
        endcase

        // Commands, while the machine stands still.
        if (init || drop) begin
            state_write <= 1'b1;
            state_at    <= index;
            state_next  <= {96'd0, 3'd0, 1'b0, 24'd0, 44'd0, 1'b0, 44'd0, 1'b0, 4'd0, 4'd0,
                            init ? init_psn : 24'd0, init ? init_psn : 24'd0};
            una_next    <= {13'd0, init ? init_psn : 24'd0};
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
            stat_cause <= state_now[WIDTH-1-96 -: 3];
            stat_msn   <= state_now[WIDTH-1-100 -: 24];
            stat_una   <= una_now[23:0];
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
            send_valid  <= 1'b0;
            event_pop   <= 1'b0;
            event_done  <= 1'b0;
            delivered   <= 1'b0;
            paused      <= 1'b0;
        end
    end

    // Counters: what happened is known one cycle after AT_ACT.
    reg  inc_sent_r, inc_resent_r, inc_timeouts_r, inc_sequence_r, inc_rnr_r, inc_rnr_messages_r, inc_fatal_r;
    reg  inc_acks_r, inc_stale_r;
    reg  [8:0] acked_packets;
    always @(posedge clk) begin
        inc_sent_r         <= send && !resend;
        inc_resent_r       <= send && resend;
        inc_timeouts_r     <= inc_timeouts;
        inc_sequence_r     <= inc_sequence;
        inc_rnr_r          <= inc_rnr;
        inc_rnr_messages_r <= inc_rnr_messages;
        inc_fatal_r        <= inc_fatal;
        inc_acks_r         <= inc_acks;
        inc_stale_r        <= inc_stale;
        acked_packets      <= moved ? number[8:0] : 9'd0;
        acked_messages     <= new_sums[0 +: 16] - sums[0 +: 16];
        acked_bytes        <= new_sums[16 +: 32] - sums[16 +: 32];
    end

    wire       count = event_done;
    wire       clear = init || drop;
    wire [3:0] count_at = clear ? index : state_at;

    rl_counter #(.WIDTH(16)) messages_acked (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(acked_messages), .snapshot(snapshot), .snapshot_index(index), .value(stat_messages_acked));
    rl_counter #(.WIDTH(32)) bytes_acked (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(acked_bytes), .snapshot(snapshot), .snapshot_index(index), .value(stat_bytes_acked));
    rl_counter #(.WIDTH(9)) packets_acked (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(acked_packets), .snapshot(snapshot), .snapshot_index(index), .value(stat_packets_acked));
    rl_counter packets_sent (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_sent_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_packets_sent));
    rl_counter packets_resent (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_resent_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_packets_resent));
    rl_counter timeouts (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_timeouts_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_timeouts));
    rl_counter sequence_naks (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_sequence_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_sequence_naks));
    rl_counter rnr_naks (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_rnr_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_rnr_naks));
    rl_counter rnr_messages (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_rnr_messages_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_rnr_messages));
    rl_counter fatal_naks (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_fatal_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_fatal_naks));
    rl_counter acks_received (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_acks_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_acks_received));
    rl_counter stale_acks (.clk(clk), .enable(count), .clear(clear), .index(count_at), .add(inc_stale_r), .snapshot(snapshot), .snapshot_index(index), .value(stat_stale_acks));

endmodule

`default_nettype wire
