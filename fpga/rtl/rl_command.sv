// Carries out the commands of both blocks, one at a time, while the machines
// that own the state stand still. Before anything is dropped, what is under way
// leaves: no packet is ever made of two sessions. The MAC cannot hold that up
// (see rl_tx_out), so that every command ends.
`default_nettype none

module rl_command #(
    parameter QUEUE_PAIRS = 8,
    parameter CLOCK_KHZ   = 250000,
    parameter MAX_WINDOW  = 256,
    parameter [31:0] MAX_FRAME = 32'd16777216,
    parameter        EXTERNAL  = 0,  // there is an external source, for this stream
    parameter [3:0]  EXTERNAL_STREAM = 4'd0,
    parameter [31:0] MAX_EXTERNAL = 32'd0
) (
    input  wire         clk,
    input  wire         rst,

    // Core block
    input  wire [31:0]  core_command,
    input  wire         core_runs,     // it is not 0
    output reg          core_clear,
    output reg  [31:0]  core_status,
    output reg  [31:0]  core_detail,
    output reg  [31:0]  core_count,
    input  wire [31:0]  local_mac_low,
    input  wire [31:0]  local_mac_high,
    input  wire [127:0] local_ip,       // register 0 highest
    input  wire [31:0]  qp_config,
    input  wire [31:0]  qp_local_qpn,
    input  wire [31:0]  qp_remote_qpn,
    input  wire [31:0]  qp_start_psn,
    input  wire [31:0]  qp_window,
    input  wire [31:0]  qp_source_port,
    input  wire [31:0]  qp_traffic,
    input  wire [31:0]  qp_pkey,
    input  wire [31:0]  qp_remote_mac_low,
    input  wire [31:0]  qp_remote_mac_high,
    input  wire [127:0] qp_remote_ip,

    // Stream block
    input  wire [31:0]  stream_command,
    input  wire         stream_runs,
    output reg          stream_clear,
    output reg  [31:0]  stream_status,
    output reg  [31:0]  stream_detail,
    output reg  [31:0]  stream_count,
    input  wire [31:0]  stream_config,
    input  wire [31:0]  stream_frame_bytes,
    input  wire [31:0]  stream_slots,
    input  wire [31:0]  stream_stride,
    input  wire [63:0]  stream_base,
    input  wire [63:0]  stream_credit,
    input  wire [31:0]  stream_burst,

    // The machines
    output reg          pause,
    input  wire         paused,
    input  wire         drained,
    input  wire         undelivered,
    input  wire         sweeping,    // counters are latched or set to zero
    input  wire [QUEUE_PAIRS-1:0]   ready,
    input  wire [QUEUE_PAIRS-1:0]   error,
    input  wire [3*QUEUE_PAIRS-1:0] states,
    input  wire [QUEUE_PAIRS-1:0]   ended,
    output reg  [3:0]   index,
    output reg          qp_init,
    output reg          qp_drop,
    output reg  [247:0] peer,
    output reg  [1:0]   epoch,
    output reg          commit,
    output reg          start,
    output reg          stop,
    output reg          clear,
    output reg  [49:0]  cost,
    output reg  [63:0]  allow,
    output reg          snapshot,
    output reg  [2:0]   stat_qp_state,
    output reg  [2:0]   stat_stream_state,
    output reg          stat_ended,
    output reg          clear_totals
);

`include "rl_wire.vh"
`include "rocelink_regs.vh"

    localparam [3:0] LAST_QP = QUEUE_PAIRS[3:0] - 4'd1;

    localparam [3:0] AT_SWEEP = 0, AT_IDLE = 1, AT_PAUSE = 2, AT_JUDGE = 3, AT_REFUSE = 4, AT_SUM = 5, AT_MULTIPLY = 6,
                     AT_CHECK_BASE = 7, AT_COST = 8, AT_ALLOW = 9, AT_DO = 10, AT_FINISH = 11, AT_SETTLE = 12,
                     AT_DECODE = 13;

    reg  [3:0]  at, then;
    reg  [4:0]  wait_for;
    reg         on_stream;
    reg  [7:0]  op, asked;
    reg  [7:0]  code;
    reg  [31:0] detail;

    reg  is_core_commit, is_core_reset, is_reset_all, is_commit, is_start, is_stop, is_reset, latches, drops, no_op, no_index;
    always @(posedge clk) begin
        is_core_commit <= !on_stream && op == RL_CORE_COMMAND_OP_COMMIT;
        is_core_reset  <= !on_stream && op == RL_CORE_COMMAND_OP_RESET;
        is_reset_all   <= !on_stream && op == RL_CORE_COMMAND_OP_RESET_ALL;
        is_commit      <= on_stream && op == RL_STREAM_COMMAND_OP_COMMIT;
        is_start       <= on_stream && op == RL_STREAM_COMMAND_OP_START;
        is_stop        <= on_stream && op == RL_STREAM_COMMAND_OP_STOP;
        is_reset       <= on_stream && op == RL_STREAM_COMMAND_OP_RESET;
        latches        <= op == (on_stream ? RL_STREAM_COMMAND_OP_LATCH : RL_CORE_COMMAND_OP_LATCH);
        drops          <= on_stream ? op == RL_STREAM_COMMAND_OP_RESET :
                          op == RL_CORE_COMMAND_OP_RESET || op == RL_CORE_COMMAND_OP_RESET_ALL;
        no_op          <= op == 8'd0 || op > (on_stream ? RL_STREAM_COMMAND_OP_LATCH : RL_CORE_COMMAND_OP_RESET_ALL);
        no_index       <= !(!on_stream && op == RL_CORE_COMMAND_OP_RESET_ALL) && asked > {4'd0, LAST_QP};
    end

    // The state of what the command is for.
    reg  [1:0]  qp_state;
    reg  [2:0]  stream_state;
    reg         stream_ended, start_bad, stop_bad;
    reg  [QUEUE_PAIRS-1:0] used, same_qpn;
    reg  [23:0] qpns [0:QUEUE_PAIRS-1];
    integer     k;
    always @(posedge clk) begin
        qp_state     <= 2'd0;
        stream_state <= 3'd0;
        stream_ended <= 1'b0;
        used         <= ready | error;
        for (k = 0; k < QUEUE_PAIRS; k = k + 1) begin
            same_qpn[k] <= used[k] && qpns[k] == qp_local_qpn[23:0];
            if (index == k[3:0]) begin
                qp_state     <= ready[k] ? RL_CORE_STAT_STATE_STATE_READY[1:0] :
                                error[k] ? RL_CORE_STAT_STATE_STATE_ERROR[1:0] : RL_CORE_STAT_STATE_STATE_RESET[1:0];
                stream_state <= states[3*k +: 3];
                stream_ended <= ended[k];
                if (qp_init)
                    qpns[k] <= qp_local_qpn[23:0];
            end
        end
        start_bad <= stream_state != RL_STREAM_STAT_STATE_STATE_CONFIGURED[2:0] ||
                     qp_state != RL_CORE_STAT_STATE_STATE_READY[1:0];
        stop_bad  <= stream_state != RL_STREAM_STAT_STATE_STATE_RUNNING[2:0] &&
                     stream_state != RL_STREAM_STAT_STATE_STATE_STOPPING[2:0] &&
                     stream_state != RL_STREAM_STAT_STATE_STATE_STOPPED[2:0];
    end

    // What Commit of a queue pair refuses, in this order.
    reg         local_v4, remote_v4;
    reg  [12:0] qp_bad;
    always @(posedge clk) begin
        local_v4   <= local_ip[127:32] == 96'hffff;
        remote_v4  <= qp_remote_ip[127:32] == 96'hffff;
        qp_bad[0]  <= qp_config[2:0] == 3'd0 || qp_config[2:0] > 3'd5;
        qp_bad[1]  <= qp_local_qpn < 32'd2 || qp_local_qpn > 32'hffffff;
        qp_bad[2]  <= qp_remote_qpn < 32'd2 || qp_remote_qpn > 32'hffffff;
        qp_bad[3]  <= same_qpn != 0;
        qp_bad[4]  <= qp_start_psn > 32'hffffff;
        qp_bad[5]  <= qp_window == 32'd0 || qp_window > MAX_WINDOW;
        qp_bad[6]  <= qp_source_port == 32'd0 || qp_source_port > 32'hffff;
        qp_bad[7]  <= qp_traffic[15:8] == 8'd0;
        qp_bad[8]  <= qp_pkey > 32'hffff;
        qp_bad[9]  <= qp_remote_mac_high > 32'hffff;
        qp_bad[10] <= qp_remote_mac_high[8] || qp_remote_mac_high[15:0] == 16'd0 && qp_remote_mac_low == 32'd0;
        qp_bad[11] <= !local_v4 || local_ip[31:0] == 32'd0 || local_ip[31:28] == 4'he;
        qp_bad[12] <= !remote_v4 || qp_remote_ip[31:0] == 32'd0 || qp_remote_ip[31:28] == 4'he;
    end
    reg  [15:0] qp_refused;
    reg         qp_refuses;
    always @(posedge clk) begin
        qp_refuses <= qp_bad != 13'd0;
        if (qp_bad[12]) qp_refused <= RL_CORE_QP_REMOTE_IP0;
        if (qp_bad[11]) qp_refused <= RL_CORE_LOCAL_IP0;
        if (qp_bad[10]) qp_refused <= RL_CORE_QP_REMOTE_MAC_LOW;
        if (qp_bad[9])  qp_refused <= RL_CORE_QP_REMOTE_MAC_HIGH;
        if (qp_bad[8])  qp_refused <= RL_CORE_QP_P_KEY;
        if (qp_bad[7])  qp_refused <= RL_CORE_QP_TRAFFIC;
        if (qp_bad[6])  qp_refused <= RL_CORE_QP_SOURCE_PORT;
        if (qp_bad[5])  qp_refused <= RL_CORE_QP_WINDOW;
        if (qp_bad[4])  qp_refused <= RL_CORE_QP_START_PSN;
        if (qp_bad[3])  qp_refused <= RL_CORE_QP_LOCAL_QPN;
        if (qp_bad[2])  qp_refused <= RL_CORE_QP_REMOTE_QPN;
        if (qp_bad[1])  qp_refused <= RL_CORE_QP_LOCAL_QPN;
        if (qp_bad[0])  qp_refused <= RL_CORE_QP_CONFIG;
    end

    // What Commit of a stream refuses. This build has no CRC.
    wire [3:0]  verb   = stream_config[RL_STREAM_CONFIG_VERB_LSB +: RL_STREAM_CONFIG_VERB_WIDTH];
    wire        rings  = verb == RL_STREAM_CONFIG_VERB_WRITE || verb == RL_STREAM_CONFIG_VERB_WRITE_IMM ||
                         verb == RL_STREAM_CONFIG_VERB_READ;
    wire [3:0]  source = stream_config[RL_STREAM_CONFIG_SOURCE_LSB +: RL_STREAM_CONFIG_SOURCE_WIDTH];
    wire        external = source == RL_STREAM_CONFIG_SOURCE_EXTERNAL;
    reg  [32:0] least;
    reg  [5:0]  stream_bad;
    always @(posedge clk) begin
        least         <= {1'b0, stream_frame_bytes} + ((verb == RL_STREAM_CONFIG_VERB_WRITE) ? 33'd16 : 33'd0);
        stream_bad[0] <= verb > RL_STREAM_CONFIG_VERB_READ ||
                         stream_config[RL_STREAM_CONFIG_PATTERN_LSB +: 4] > RL_STREAM_CONFIG_PATTERN_PRBS31 ||
                         source > RL_STREAM_CONFIG_SOURCE_EXTERNAL ||
                         external && (EXTERNAL == 0 || index != EXTERNAL_STREAM || verb == RL_STREAM_CONFIG_VERB_READ) ||
                         stream_config[RL_STREAM_CONFIG_CRC_LSB];
        stream_bad[1] <= stream_frame_bytes > (external ? MAX_EXTERNAL : MAX_FRAME) ||
                         external && stream_frame_bytes == 32'd0;
        stream_bad[2] <= rings && stream_slots == 32'd0;
        stream_bad[3] <= rings && (stream_stride[2:0] != 3'd0 || {1'b0, stream_stride} < least);
        stream_bad[5] <= verb == RL_STREAM_CONFIG_VERB_WRITE && stream_credit[2:0] != 3'd0;
    end

    // One multiplier for all that Commit computes, a bit a cycle.
    reg  [49:0] factor;
    reg  [31:0] times;
    reg  [82:0] product;
    reg  [5:0]  bits_left;

    // The last byte of the ring must have an address: base and size may add up
    // to 2^64 but no more.
    reg  [64:0] ring_end;
    reg  [7:0]  ring_more; // where its bytes are not 0
    reg         ring_over;
    integer     b;
    always @(posedge clk) begin
        ring_end  <= {1'b0, stream_base} + {1'b0, product[63:0]};
        for (b = 0; b < 8; b = b + 1)
            ring_more[b] <= ring_end[8*b +: 8] != 8'd0;
        ring_over <= rings && ring_end[64] && ring_more != 8'd0;
    end

    reg  [31:0] burst_more; // frames beside the first
    always @(posedge clk)
        burst_more <= stream_burst - {31'd0, stream_burst != 32'd0};

    localparam [49:0] FRAME_COST = 50'd8 * CLOCK_KHZ;

    // The IPv4 header's checksum without the length: six words a cycle each.
    reg  [15:0] sum;
    reg  [3:0]  term;
    reg  [15:0] word;
    always @* case (term)
        4'd0:    word = {8'h45, qp_traffic[7:0]};
        4'd1:    word = 16'h4000;
        4'd2:    word = {qp_traffic[15:8], 8'd17};
        4'd3:    word = local_ip[31:16];
        4'd4:    word = local_ip[15:0];
        4'd5:    word = qp_remote_ip[31:16];
        default: word = qp_remote_ip[15:0];
    endcase

    always @(posedge clk) begin
        core_clear   <= 1'b0;
        stream_clear <= 1'b0;
        qp_init      <= 1'b0;
        qp_drop      <= 1'b0;
        commit       <= 1'b0;
        start        <= 1'b0;
        stop         <= 1'b0;
        clear        <= 1'b0;
        snapshot     <= 1'b0;
        clear_totals <= 1'b0;
        wait_for     <= (wait_for == 5'd0) ? 5'd0 : wait_for - 5'd1;

        case (at)
            AT_SWEEP: begin // after reset: every counter and state to zero
                pause <= 1'b1;
                if (wait_for == 5'd0 && paused) begin
                    qp_drop      <= 1'b1;
                    clear        <= 1'b1;
                    clear_totals <= 1'b1;
                    wait_for     <= 5'd7;
                    at           <= AT_SETTLE;
                end
            end
            AT_SETTLE: // one index is done: the next, or the end
                if (wait_for == 5'd0 && !sweeping) begin
                    index    <= index + 4'd1;
                    wait_for <= 5'd7;
                    at       <= then;
                    if (index == LAST_QP) begin
                        index <= 4'd0;
                        at    <= (then == AT_SWEEP) ? AT_IDLE : AT_FINISH;
                    end
                end
            AT_IDLE: begin
                pause <= 1'b0;
                if (core_runs && !core_clear) begin
                    on_stream <= 1'b0;
                    op        <= core_command[7:0];
                    asked     <= core_command[15:8];
                    index     <= core_command[11:8];
                    at        <= AT_DECODE;
                end else if (stream_runs && !stream_clear) begin
                    on_stream <= 1'b1;
                    op        <= stream_command[7:0];
                    asked     <= stream_command[15:8];
                    index     <= stream_command[11:8];
                    at        <= AT_DECODE;
                end
                code      <= RL_CORE_COMMAND_STATUS_CODE_OK;
                detail    <= 32'd0;
                wait_for  <= 5'd15;
                sum       <= 16'd0;
                term      <= 4'd0;
            end
            AT_DECODE:
                at <= AT_PAUSE;
            AT_PAUSE:
                if (no_op) begin
                    code <= RL_CORE_COMMAND_STATUS_CODE_BAD_OP;
                    at   <= AT_FINISH;
                end else if (no_index) begin
                    code <= RL_CORE_COMMAND_STATUS_CODE_BAD_INDEX;
                    at   <= AT_FINISH;
                end else begin
                    pause <= 1'b1;
                    if (is_reset_all)
                        index <= 4'd0;
                    // Registers behind index have settled by then.
                    if (paused && wait_for == 5'd0 && (drained || !drops))
                        at <= AT_JUDGE;
                end
            AT_JUDGE: begin
                at <= AT_DO;
                if (is_core_commit) begin
                    if (qp_state != RL_CORE_STAT_STATE_STATE_RESET[1:0]) begin
                        code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_STATE;
                        detail <= {30'd0, qp_state};
                        at     <= AT_FINISH;
                    end else if (qp_refuses) begin
                        code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_VALUE;
                        detail <= {16'd0, qp_refused};
                        at     <= AT_FINISH;
                    end else
                        at <= AT_SUM;
                end
                if (is_commit) begin
                    if (stream_state != RL_STREAM_STAT_STATE_STATE_IDLE[2:0]) begin
                        code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_STATE;
                        detail <= {29'd0, stream_state};
                        at     <= AT_FINISH;
                    end else
                        at <= AT_REFUSE;
                end
                if (is_start && start_bad || is_stop && stop_bad) begin
                    code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_STATE;
                    detail <= {29'd0, stream_state};
                    at     <= AT_FINISH;
                end
                factor    <= {18'd0, stream_stride};
                times     <= stream_slots;
                product   <= 83'd0;
                bits_left <= 6'd32;
            end
            AT_REFUSE: begin
                code <= RL_CORE_COMMAND_STATUS_CODE_BAD_VALUE;
                at   <= AT_FINISH;
                if (stream_bad[0])
                    detail <= {16'd0, RL_STREAM_CONFIG};
                else if (stream_bad[1])
                    detail <= {16'd0, RL_STREAM_FRAME_BYTES};
                else if (stream_bad[2])
                    detail <= {16'd0, RL_STREAM_SLOTS};
                else if (stream_bad[3])
                    detail <= {16'd0, RL_STREAM_STRIDE};
                else begin
                    code <= RL_CORE_COMMAND_STATUS_CODE_OK;
                    at   <= AT_MULTIPLY;
                    then <= AT_CHECK_BASE;
                end
            end
            AT_MULTIPLY: begin
                product   <= {product[81:0], 1'b0} + (times[31] ? {33'd0, factor} : 83'd0);
                times     <= {times[30:0], 1'b0};
                bits_left <= bits_left - 6'd1;
                wait_for  <= 5'd3;
                if (bits_left == 6'd1)
                    at <= then;
            end
            AT_CHECK_BASE: // when the sum has settled
                if (wait_for != 5'd0) begin
                end else if (ring_over) begin
                    code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_VALUE;
                    detail <= {16'd0, RL_STREAM_BASE};
                    at     <= AT_FINISH;
                end else if (stream_bad[5]) begin
                    code   <= RL_CORE_COMMAND_STATUS_CODE_BAD_VALUE;
                    detail <= {16'd0, RL_STREAM_CREDIT};
                    at     <= AT_FINISH;
                end else begin
                    at        <= AT_MULTIPLY;
                    then      <= AT_COST;
                    factor    <= FRAME_COST;
                    times     <= stream_frame_bytes;
                    product   <= 83'd0;
                    bits_left <= 6'd32;
                end
            AT_COST: begin
                cost      <= product[49:0];
                at        <= AT_MULTIPLY;
                then      <= AT_ALLOW;
                factor    <= product[49:0];
                times     <= burst_more;
                product   <= 83'd0;
                bits_left <= 6'd32;
            end
            AT_ALLOW: begin
                allow <= (product[82:62] != 21'd0) ? 64'h3fff_ffff_ffff_ffff : product[63:0];
                at    <= AT_DO;
            end
            AT_SUM: begin
                sum  <= fold17({1'b0, sum} + {1'b0, word});
                term <= term + 4'd1;
                if (term == 4'd6)
                    at <= AT_DO;
            end
            AT_DO: begin
                at       <= AT_FINISH;
                wait_for <= 5'd7;
                if (is_core_commit) begin
                    peer    <= {sum, qp_traffic[15:8], qp_traffic[7:0], qp_pkey[15:0], qp_remote_qpn[23:0],
                                qp_source_port[15:0], qp_remote_ip[31:0], local_ip[31:0],
                                local_mac_high[15:0], local_mac_low, qp_remote_mac_high[15:0], qp_remote_mac_low};
                    epoch   <= epoch + 2'd1;
                    qp_init <= 1'b1;
                end
                if (is_core_reset)
                    qp_drop <= 1'b1;
                if (is_reset_all) begin
                    qp_drop      <= 1'b1;
                    clear_totals <= 1'b1;
                    then         <= AT_DO;
                    at           <= AT_SETTLE;
                end
                if (latches) begin
                    snapshot          <= 1'b1;
                    stat_qp_state     <= {1'b0, qp_state};
                    stat_stream_state <= stream_state;
                    stat_ended        <= stream_ended;
                end
                commit <= is_commit;
                start  <= is_start;
                stop   <= is_stop;
                if (is_reset) begin
                    clear   <= 1'b1;
                    qp_drop <= qp_state == RL_CORE_STAT_STATE_STATE_READY[1:0] && undelivered;
                end
            end
            default: // AT_FINISH: what was done has settled
                if (wait_for == 5'd0 && !sweeping) begin
                    if (on_stream) begin
                        stream_clear  <= 1'b1;
                        stream_status <= {24'd0, code};
                        stream_detail <= detail;
                        stream_count  <= stream_count + 32'd1;
                    end else begin
                        core_clear  <= 1'b1;
                        core_status <= {24'd0, code};
                        core_detail <= detail;
                        core_count  <= core_count + 32'd1;
                    end
                    at <= AT_IDLE;
                end
        endcase

        if (rst) begin
            at            <= AT_SWEEP;
            then          <= AT_SWEEP;
            wait_for      <= 5'd7;
            pause         <= 1'b1;
            index         <= 4'd0;
            epoch         <= 2'd0;
            core_status   <= 32'd0;
            core_detail   <= 32'd0;
            core_count    <= 32'd0;
            stream_status <= 32'd0;
            stream_detail <= 32'd0;
            stream_count  <= 32'd0;
        end
    end

endmodule

`default_nettype wire
