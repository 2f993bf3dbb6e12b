// The RoCE v2 requester core between a register bus and a 512-bit MAC, all in
// one clock.
//
// Streams make messages, messages are cut into packets (rl_ingest) whose payload
// goes into the ring (rl_fill, rl_ring); the transport (rl_transport) says which
// packet leaves next, rl_tx_header and rl_tx_frame make its frame, the ICRC is
// put in and the frame waits for the MAC. Responses come back through rl_rx. All
// transmission reads from the ring, so that going back is moving a pointer.
//
// Ports that came later: s_source_*, tied to 0 where EXTERNAL is 0, an
// AXI4-Stream of 64 bytes a beat, of which each tlast ends a frame of a stream.
`default_nettype none

module rl_core #(
    parameter        QUEUE_PAIRS = 8,      // 1..16
    parameter        CLOCK_KHZ   = 250000,
    parameter [31:0] BUILD       = 32'd0,
    parameter        STALL_BITS  = 17,     // see rl_tx_out
    parameter        EXTERNAL    = 0,      // 1: stream EXTERNAL_STREAM may take frames from s_source
    parameter [3:0]  EXTERNAL_STREAM = 4'd0
) (
    input  wire         clk,
    input  wire         rst,          // one cycle is enough
    input  wire [31:0]  boot,         // differs after each start, or 0

    // Register bus: Core at 0, Stream at 0x1000; the answer comes two cycles
    // after the address
    input  wire         bus_write,
    input  wire [15:0]  bus_address,
    input  wire [31:0]  bus_wdata,
    output reg  [31:0]  bus_rdata,

    // As the registers have them, the address IPv4-mapped or IPv6
    output wire [47:0]  local_mac,
    output wire [127:0] local_ip,

    // MAC, from the core
    input  wire         link_up,
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tlast,
    output wire         m_axis_tuser,

    // MAC, to the core
    input  wire         s_axis_tvalid,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,

    // External source
    input  wire         s_source_tvalid,
    output wire         s_source_tready,
    input  wire [511:0] s_source_tdata,
    input  wire [63:0]  s_source_tkeep,
    input  wire         s_source_tlast,
    input  wire         s_source_lossy   // drop frames instead of waiting
);

`include "rl_wire.vh"
`include "rl_counts.vh"
`include "rocelink_regs.vh"

    generate
        if (QUEUE_PAIRS < 1 || QUEUE_PAIRS > 16)
            rl_core_has_1_to_16_queue_pairs illegal();
    endgenerate

    localparam MAX_WINDOW  = 256;
    localparam MAX_READS   = 4;
    localparam MAX_FRAME   = 32'd16777216;
    localparam STREAM_BASE = 32'h1000;
    localparam RING_BITS   = 12 + ((QUEUE_PAIRS > 8) ? 4 : (QUEUE_PAIRS > 4) ? 3 : (QUEUE_PAIRS > 2) ? 2 :
                                   (QUEUE_PAIRS > 1) ? 1 : 0);
    localparam META_BITS   = RING_BITS - 4;

    // A reset is made longer than any pipeline, so that no old beat outlives it.
    reg  [6:0] resetting;
    reg        reset;
    always @(posedge clk) begin
        if (rst)
            resetting <= 7'd127;
        else if (resetting != 7'd0)
            resetting <= resetting - 7'd1;
        reset <= rst || resetting != 7'd0;
    end

    reg  [63:0] uptime;
    reg  [63:0] stat_uptime;
    always @(posedge clk)
        uptime <= reset ? 64'd0 : uptime + 64'd1;

    // Registers
    wire [31:0] scratch, control, local_mac_low, local_mac_high, local_ip0, local_ip1, local_ip2, local_ip3;
    assign      local_mac = {local_mac_high[15:0], local_mac_low};
    assign      local_ip  = {local_ip0, local_ip1, local_ip2, local_ip3};
    wire [31:0] core_command, core_status, core_detail, core_count;
    wire        core_clear, stream_clear, core_runs, stream_runs;
    wire [31:0] qp_config, qp_local_qpn, qp_remote_qpn, qp_start_psn, qp_window, qp_source_port, qp_traffic, qp_pkey;
    wire [31:0] qp_remote_mac_low, qp_remote_mac_high, qp_remote_ip0, qp_remote_ip1, qp_remote_ip2, qp_remote_ip3;
    wire [2:0]  stat_cause, stat_qp_state;
    wire [23:0] stat_next_psn, stat_una, stat_msn;
    wire [3:0]  index;
    wire        snapshot;
    reg  [3:0]  stat_index;
    wire [63:0] tx_packets, tx_bytes, tx_dropped, rx_packets, rx_bytes, rx_bad_icrc, rx_malformed, rx_unknown_qp;
    wire [63:0] rx_bad_opcode, rx_wrong_address;
    wire [31:0] core_rdata, stream_rdata, count_rdata;
    wire        core_counted, stream_counted;
    wire        core_selected   = bus_address[15:10] == 6'd0;
    wire        stream_selected = bus_address[15:10] == STREAM_BASE[15:10];

    wire [31:0] caps = (QUEUE_PAIRS << RL_CORE_CAPS_QUEUE_PAIRS_LSB) | (32'd5 << RL_CORE_CAPS_MAX_MTU_LSB) |
                       (32'd1 << RL_CORE_CAPS_READ_LSB) |
                       ((EXTERNAL != 0) ? 32'd1 << RL_CORE_CAPS_EXTERNAL_LSB : 32'd0);

    rl_core_regs core_regs (
        .clk(clk), .rst(reset), .rst_word(resetting), .write(bus_write && core_selected), .address(bus_address[9:0]), .wdata(bus_wdata),
        .rdata(core_rdata), .counted(core_counted),
        .next(STREAM_BASE), .build(BUILD), .caps(caps), .max_window(MAX_WINDOW), .scratch(scratch), .boot(boot),
        .clock_khz(CLOCK_KHZ), .max_reads(MAX_READS), .control(control),
        .local_mac_low(local_mac_low), .local_mac_high(local_mac_high),
        .local_ip0(local_ip0), .local_ip1(local_ip1), .local_ip2(local_ip2), .local_ip3(local_ip3),
        .command(core_command), .command_runs(core_runs), .command_clear(core_clear), .command_status(core_status),
        .command_detail(core_detail), .command_count(core_count),
        .qp_config(qp_config), .qp_local_qpn(qp_local_qpn), .qp_remote_qpn(qp_remote_qpn),
        .qp_start_psn(qp_start_psn), .qp_window(qp_window), .qp_source_port(qp_source_port),
        .qp_traffic(qp_traffic), .qp_pkey(qp_pkey),
        .qp_remote_mac_low(qp_remote_mac_low), .qp_remote_mac_high(qp_remote_mac_high),
        .qp_remote_ip0(qp_remote_ip0), .qp_remote_ip1(qp_remote_ip1),
        .qp_remote_ip2(qp_remote_ip2), .qp_remote_ip3(qp_remote_ip3),
        .stat_state({21'd0, stat_cause, 5'd0, stat_qp_state}), .stat_next_psn({8'd0, stat_next_psn}),
        .stat_unacked_psn({8'd0, stat_una}), .stat_msn({8'd0, stat_msn}), .stat_index({28'd0, stat_index}),
        .uptime(stat_uptime),
        .tx_packets(tx_packets), .tx_bytes(tx_bytes), .tx_dropped(tx_dropped),
        .rx_packets(rx_packets), .rx_bytes(rx_bytes), .rx_bad_icrc(rx_bad_icrc), .rx_malformed(rx_malformed),
        .rx_unknown_qp(rx_unknown_qp), .rx_bad_opcode(rx_bad_opcode), .rx_wrong_address(rx_wrong_address)
    );

    wire [31:0] stream_command, stream_status, stream_detail, stream_count;
    wire [31:0] stream_config, stream_frame_bytes, stream_slots, stream_stride, stream_rkey, stream_kbps, stream_burst;
    wire [63:0] stream_base, stream_credit, stream_frames;
    wire [63:0] stat_released;
    wire [3*QUEUE_PAIRS-1:0] states;
    wire [QUEUE_PAIRS-1:0]   ended;
    wire [63:0] source_drops;
    wire [2:0]  stat_stream_state;
    wire        stat_ended;

    rl_stream_regs stream_regs (
        .clk(clk), .rst(reset), .rst_word(resetting), .write(bus_write && stream_selected), .address(bus_address[9:0]), .wdata(bus_wdata),
        .rdata(stream_rdata), .counted(stream_counted),
        .next(32'd0), .streams(QUEUE_PAIRS), .max_frame_bytes(MAX_FRAME),
        .command(stream_command), .command_runs(stream_runs), .command_clear(stream_clear), .command_status(stream_status),
        .command_detail(stream_detail), .command_count(stream_count),
        .config_word(stream_config), .frame_bytes(stream_frame_bytes), .slots(stream_slots), .stride(stream_stride),
        .base(stream_base), .rkey(stream_rkey), .credit(stream_credit), .rate_kbps(stream_kbps), .burst(stream_burst),
        .count(stream_frames),
        .stat_state({23'd0, stat_ended, 5'd0, stat_stream_state}), .stat_index({28'd0, stat_index}),
        .stat_source_dropped((stat_index == EXTERNAL_STREAM) ? source_drops : 64'd0), .stat_released(stat_released)
    );

    reg        core_answers, stream_answers;
    reg        enable;
    always @(posedge clk) begin
        core_answers   <= core_selected;
        stream_answers <= stream_selected;
        bus_rdata      <= (core_answers && core_counted || stream_answers && stream_counted) ? count_rdata :
                          core_answers ? core_rdata : stream_answers ? stream_rdata : 32'd0;
        enable         <= control[RL_CORE_CONTROL_ENABLE_LSB] && !reset;
        if (snapshot) begin
            stat_index  <= index;
            stat_uptime <= uptime;
        end
    end

    // Counters of queue pairs and streams
    wire         sweeping, wipe;
    wire [4:0]   sweep_number;
    wire [63:0]  transport_counted, ingest_counted, reads_counted;
    rl_sweep sweep (
        .clk(clk), .rst(reset), .wipe_qp(qp_init || qp_drop), .wipe_stream(clear), .wipe_all(clear && clear_totals),
        .snapshot(snapshot), .busy(sweeping), .wipe(wipe), .number(sweep_number),
        .value(transport_counted | ingest_counted | reads_counted), // each counter is in one, the others have zeros
        .bus_number(bus_address[7:3] - (bus_address[12] ? RL_COUNT_STREAM : 5'd0)), .bus_high(bus_address[2]),
        .bus_rdata(count_rdata)
    );

    // Commands
    wire         pause, transport_paused, ingest_paused, reads_idle, undelivered;
    wire         qp_init, qp_drop, commit, start, stop, clear, clear_totals;
    wire [247:0] peer;
    wire [1:0]   epoch;
    wire [49:0]  cost;
    wire [63:0]  allow;
    wire [QUEUE_PAIRS-1:0] ready, error;
    wire         fill_idle;
    reg  [4:0]   outstanding; // packets from the transport to their last read of the ring
    reg          drained;

    rl_command #(
        .QUEUE_PAIRS(QUEUE_PAIRS), .CLOCK_KHZ(CLOCK_KHZ), .MAX_WINDOW(MAX_WINDOW), .MAX_FRAME(MAX_FRAME),
        .EXTERNAL(EXTERNAL), .EXTERNAL_STREAM(EXTERNAL_STREAM), .MAX_EXTERNAL(32'd131072)
    ) commands (
        .clk(clk), .rst(reset),
        .core_command(core_command), .core_runs(core_runs), .core_clear(core_clear), .core_status(core_status), .core_detail(core_detail),
        .core_count(core_count), .local_mac_low(local_mac_low), .local_mac_high(local_mac_high),
        .local_ip(local_ip), .qp_config(qp_config), .qp_local_qpn(qp_local_qpn),
        .qp_remote_qpn(qp_remote_qpn), .qp_start_psn(qp_start_psn), .qp_window(qp_window),
        .qp_source_port(qp_source_port), .qp_traffic(qp_traffic), .qp_pkey(qp_pkey),
        .qp_remote_mac_low(qp_remote_mac_low), .qp_remote_mac_high(qp_remote_mac_high),
        .qp_remote_ip({qp_remote_ip0, qp_remote_ip1, qp_remote_ip2, qp_remote_ip3}),
        .stream_command(stream_command), .stream_runs(stream_runs), .stream_clear(stream_clear), .stream_status(stream_status),
        .stream_detail(stream_detail), .stream_count(stream_count), .stream_config(stream_config),
        .stream_frame_bytes(stream_frame_bytes), .stream_slots(stream_slots), .stream_stride(stream_stride),
        .stream_base(stream_base), .stream_credit(stream_credit), .stream_burst(stream_burst),
        .pause(pause), .paused(transport_paused && ingest_paused && reads_idle), .drained(drained), .undelivered(undelivered),
        .sweeping(sweeping),
        .ready(ready), .error(error), .states(states), .ended(ended), .index(index),
        .qp_init(qp_init), .qp_drop(qp_drop), .peer(peer), .epoch(epoch), .commit(commit), .start(start), .stop(stop),
        .clear(clear), .cost(cost), .allow(allow), .snapshot(snapshot), .stat_qp_state(stat_qp_state),
        .stat_stream_state(stat_stream_state), .stat_ended(stat_ended), .clear_totals(clear_totals)
    );

    // Streams and the ring
    wire [3:0]   look_qp;
    wire [9:0]   look_una;
    wire [1:0]   look_tag;
    wire [63:0]  look_released;
    wire         look_seen;
    wire [43:0]  look_again;
    wire [12:0]  look_tail;
    wire         delivered;
    wire [3:0]   delivered_qp;
    wire [15:0]  delivered_frames;
    wire [31:0]  delivered_bytes;
    wire         meta_write;
    wire [11:0]  meta_address;
    wire [220:0] meta_in;
    wire [159:0] done_in;
    wire         fill_valid, fill_full, fill_first, fill_trailer, fill_prbs, fill_external;
    wire [3:0]   fill_qp;
    wire [9:0]   fill_position;
    wire [11:0]  fill_start;
    wire [12:0]  fill_length;
    wire [18:0]  fill_offset;
    wire [63:0]  fill_sequence;
    wire [31:0]  fill_frame;

    wire         external = stream_config[RL_STREAM_CONFIG_SOURCE_LSB];
    wire         source_valid, source_pop, source_read;
    wire [24:0]  source_length;
    wire [511:0] source_data;
    generate
        if (EXTERNAL != 0) begin : source
            wire mine = index == EXTERNAL_STREAM;
            wire dropped_now;
            reg  [24:0] limit;
            rl_source frames_in (
                .clk(clk), .rst(reset), .begins(commit && mine && external), .closes(clear && mine), .limit(limit),
                .lossy(s_source_lossy),
                .s_axis_tvalid(s_source_tvalid), .s_axis_tready(s_source_tready), .s_axis_tdata(s_source_tdata),
                .s_axis_tkeep(s_source_tkeep), .s_axis_tlast(s_source_tlast),
                .valid(source_valid), .length(source_length), .pop(source_pop), .read(source_read), .data(source_data),
                .dropped(dropped_now)
            );
            always @(posedge clk)
                if (commit && mine)
                    limit <= stream_frame_bytes[24:0];
            rl_total drops (
                .clk(clk), .clear((commit || clear) && mine), .enable(dropped_now), .add(1'b1), .snapshot(snapshot),
                .value(source_drops)
            );
        end else begin : no_source
            assign s_source_tready = 1'b0;
            assign source_valid    = 1'b0;
            assign source_length   = 25'd0;
            assign source_data     = 512'd0;
            assign source_drops    = 64'd0;
        end
    endgenerate

    rl_ingest #(.QUEUE_PAIRS(QUEUE_PAIRS), .MAX_READS(MAX_READS), .EXTERNAL(EXTERNAL)) ingest (
        .clk(clk), .rst(reset), .enable(enable), .now(uptime[43:0]), .pause(pause), .paused(ingest_paused), .index(index),
        .qp_init(qp_init), .qp_drop(qp_drop), .init_psn(qp_start_psn[23:0]), .init_mtu(qp_config[2:0]),
        .init_window(qp_window[8:0]), .commit(commit), .start(start), .stop(stop), .clear(clear),
        .verb(stream_config[2:0]), .prbs(stream_config[RL_STREAM_CONFIG_PATTERN_LSB]),
        .solicited(stream_config[RL_STREAM_CONFIG_SOLICITED_LSB]), .external(external),
        .source_valid(source_valid), .source_length(source_length), .source_pop(source_pop), .frame_bytes(stream_frame_bytes[24:0]),
        .slots(stream_slots), .stride(stream_stride), .base(stream_base), .rkey(stream_rkey), .credit(stream_credit), .count(stream_frames),
        .kbps(stream_kbps), .cost(cost), .allow(allow), .undelivered(undelivered), .states(states), .ended(ended),
        .ready(ready), .look_qp(look_qp), .look_una(look_una), .look_tag(look_tag), .look_tail(look_tail),
        .look_released(look_released), .look_seen(look_seen), .look_again(look_again),
        .meta_write(meta_write), .meta_address(meta_address), .meta(meta_in), .done(done_in),
        .fill_valid(fill_valid), .fill_full(fill_full), .fill_qp(fill_qp), .fill_position(fill_position),
        .fill_start(fill_start), .fill_length(fill_length), .fill_first(fill_first), .fill_trailer(fill_trailer),
        .fill_prbs(fill_prbs), .fill_external(fill_external), .fill_offset(fill_offset), .fill_sequence(fill_sequence), .fill_frame(fill_frame),
        .snapshot(snapshot), .stat_next_psn(stat_next_psn),
        .sweep(sweeping), .wipe(wipe), .sweep_number(sweep_number), .counted(ingest_counted)
    );

    wire         ring_write, ring_read, filled;
    wire [15:0]  ring_waddress, ring_raddress;
    wire [511:0] ring_wdata, ring_rdata;
    wire [3:0]   filled_qp;
    wire [9:0]   filled_position;

    rl_fill #(.EXTERNAL(EXTERNAL)) fill (
        .clk(clk), .rst(reset), .s_valid(fill_valid), .s_full(fill_full), .s_qp(fill_qp), .s_position(fill_position),
        .s_start(fill_start), .s_length(fill_length), .s_first(fill_first), .s_trailer(fill_trailer),
        .s_prbs(fill_prbs), .s_external(fill_external), .source_read(source_read), .source_data(source_data), .s_offset(fill_offset), .s_sequence(fill_sequence), .s_frame(fill_frame), .idle(fill_idle),
        .ring_write(ring_write), .ring_address(ring_waddress), .ring_data(ring_wdata),
        .filled(filled), .filled_qp(filled_qp), .filled_position(filled_position)
    );

    rl_ring #(.ADDRESS_BITS(RING_BITS)) ring (
        .clk(clk), .write(ring_write), .waddress(ring_waddress[RING_BITS-1:0]), .wdata(ring_wdata),
        .read(ring_read), .raddress(ring_raddress[RING_BITS-1:0]), .rdata(ring_rdata)
    );

    // Metadata: one memory for headers, one for acknowledgements
    reg  [220:0] metas [0:(1<<META_BITS)-1];
    reg  [159:0] dones [0:(1<<META_BITS)-1];
    reg  [220:0] meta;
    reg  [159:0] done;
    wire         send_valid;
    wire [3:0]   send_qp;
    wire [7:0]   send_position;
    wire         send_read;
    wire [23:0]  send_psn;
    wire [24:0]  send_offset, send_left;
    wire [11:0]  send_address = {send_qp, send_position};
    wire [11:0]  done_address;
    always @(posedge clk) begin
        if (meta_write) begin
            metas[meta_address[META_BITS-1:0]] <= meta_in;
            dones[meta_address[META_BITS-1:0]] <= done_in;
        end
        meta <= metas[send_address[META_BITS-1:0]];
        done <= dones[done_address[META_BITS-1:0]];
    end

    // Transport
    wire         event_in, event_valid, event_pop;
    wire [170:0] event_in_data, event_data;
    wire         read_taken, read_credit, read_starts, read_ends;
    wire [3:0]   read_qp;
    wire [21:0]  read_word;
    wire         sent_all = outstanding == 5'd0;
    wire         orphan;

    rl_queue #(.WIDTH(171), .DEPTH_BITS(6)) events (
        .clk(clk), .rst(reset), .push(event_in), .in(event_in_data), .full(),
        .pop(event_pop), .out(event_data), .valid(event_valid), .empty()
    );

    rl_transport #(.QUEUE_PAIRS(QUEUE_PAIRS), .CLOCK_KHZ(CLOCK_KHZ)) transport (
        .clk(clk), .rst(reset), .now(uptime[43:0]), .enable(enable), .pause(pause), .paused(transport_paused),
        .init(qp_init), .drop(qp_drop), .index(index), .init_psn(qp_start_psn[23:0]), .init_epoch(epoch),
        .init_timeout(qp_config[RL_CORE_QP_CONFIG_TIMEOUT_LSB +: 5]),
        .init_retry(qp_config[RL_CORE_QP_CONFIG_RETRY_COUNT_LSB +: 3]),
        .init_rnr_retry(qp_config[RL_CORE_QP_CONFIG_RNR_RETRY_LSB +: 3]), .init_mtu(qp_config[2:0]),
        .filled(filled), .filled_qp(filled_qp), .filled_position(filled_position),
        .event_valid(event_valid), .event_data(event_data), .event_pop(event_pop),
        .done_address(done_address), .done_data(done),
        .can_send(!outstanding[3]), .send_valid(send_valid), .send_qp(send_qp), .send_position(send_position),
        .send_read(send_read), .send_psn(send_psn), .send_offset(send_offset), .send_left(send_left),
        .look_qp(look_qp), .look_una(look_una), .look_tag(look_tag), .look_tail(look_tail), .ready(ready), .error(error),
        .orphan(orphan), .delivered(delivered), .delivered_qp(delivered_qp), .delivered_frames(delivered_frames),
        .delivered_bytes(delivered_bytes),
        .read_taken(read_taken), .read_qp(read_qp), .read_credit(read_credit), .read_starts(read_starts),
        .read_ends(read_ends), .read_word(read_word),
        .snapshot(snapshot), .stat_cause(stat_cause), .stat_una(stat_una), .stat_msn(stat_msn),
        .sweep(sweeping), .wipe(wipe), .sweep_number(sweep_number), .counted(transport_counted)
    );

    rl_reads #(.QUEUE_PAIRS(QUEUE_PAIRS), .CLOCK_KHZ(CLOCK_KHZ)) reads (
        .clk(clk), .rst(reset), .now(uptime[43:0]), .commit(commit), .clear(clear), .index(index),
        .prbs(stream_config[RL_STREAM_CONFIG_PATTERN_LSB]), .slots(stream_slots),
        .taken(read_taken), .qp(read_qp), .credit(read_credit), .starts(read_starts), .ends(read_ends),
        .word(read_word), .event_data(event_data), .idle(reads_idle),
        .look_qp(look_qp), .look_released(look_released), .look_seen(look_seen), .look_again(look_again),
        .delivered(delivered), .delivered_qp(delivered_qp), .delivered_frames(delivered_frames), .delivered_bytes(delivered_bytes),
        .snapshot(snapshot), .stat_released(stat_released),
        .sweep(sweeping), .wipe(wipe), .sweep_number(sweep_number), .counted(reads_counted)
    );

    // Frames
    wire         header_valid, frame_done;
    wire [591:0] header;
    wire [3:0]   header_qp, header_tail;
    wire [11:0]  header_start;
    wire [6:0]   header_payload_beats, header_left;
    wire [1:0]   header_shape;
    wire         frame_valid, frame_first, frame_last, icrc_valid, icrc_first, icrc_last, freed;
    wire [3:0]   frame_tail, icrc_tail;
    wire [511:0] frame_data, icrc_data;
    wire         sent, dropped;
    wire         out_valid;
    assign       m_axis_tvalid = out_valid && !reset && !rst;
    wire [15:0]  sent_bytes;

    always @(posedge clk) begin
        outstanding <= reset ? 5'd0 : outstanding + {4'd0, send_valid} - {4'd0, frame_done};
        drained     <= sent_all && !send_valid && fill_idle;
    end

    rl_tx_header headers (
        .clk(clk), .rst(reset), .peer_write(qp_init), .peer_index(index), .peer_data(peer),
        .send_valid(send_valid), .send_qp(send_qp), .send_read(send_read), .send_psn(send_psn),
        .send_offset(send_offset), .send_left(send_left), .meta(meta),
        .m_valid(header_valid), .m_header(header), .m_qp(header_qp), .m_start(header_start),
        .m_payload_beats(header_payload_beats), .m_left(header_left), .m_tail(header_tail), .m_shape(header_shape)
    );

    rl_tx_frame #(.ROOM(32)) frames (
        .clk(clk), .rst(reset), .s_valid(header_valid), .s_header(header), .s_qp(header_qp), .s_start(header_start),
        .s_payload_beats(header_payload_beats), .s_left(header_left), .s_tail(header_tail), .s_shape(header_shape),
        .done(frame_done), .ring_read(ring_read), .ring_address(ring_raddress), .ring_data(ring_rdata), .freed(freed),
        .m_valid(frame_valid), .m_first(frame_first), .m_last(frame_last), .m_tail(frame_tail), .m_data(frame_data)
    );

    rl_icrc_insert insert (
        .clk(clk), .rst(reset), .s_valid(frame_valid), .s_first(frame_first), .s_last(frame_last), .s_tail(frame_tail),
        .s_data(frame_data), .m_valid(icrc_valid), .m_first(icrc_first), .m_last(icrc_last), .m_tail(icrc_tail),
        .m_data(icrc_data)
    );

    rl_tx_out #(.STALL_BITS(STALL_BITS)) out (
        .clk(clk), .rst(reset), .link_up(link_up), .s_valid(icrc_valid), .s_first(icrc_first), .s_last(icrc_last),
        .s_tail(icrc_tail), .s_data(icrc_data), .freed(freed),
        .m_axis_tvalid(out_valid), .m_axis_tready(m_axis_tready), .m_axis_tdata(m_axis_tdata),
        .m_axis_tkeep(m_axis_tkeep), .m_axis_tlast(m_axis_tlast), .m_axis_tuser(m_axis_tuser),
        .sent(sent), .sent_bytes(sent_bytes), .dropped(dropped)
    );

    // Responses
    wire         got, bad_icrc, malformed, unknown_qp, bad_opcode, wrong_address;
    wire [15:0]  got_bytes;
    rl_rx #(.QUEUE_PAIRS(QUEUE_PAIRS)) rx (
        .clk(clk), .rst(reset), .enable(enable),
        .s_axis_tvalid(s_axis_tvalid), .s_axis_tdata(s_axis_tdata), .s_axis_tkeep(s_axis_tkeep),
        .s_axis_tlast(s_axis_tlast), .s_axis_tuser(s_axis_tuser),
        .peer_write(qp_init), .peer_index(index), .peer_data(peer), .peer_qpn(qp_local_qpn[23:0]), .peer_epoch(epoch),
        .ready(ready), .event_valid(event_in), .event_data(event_in_data),
        .got(got), .got_bytes(got_bytes), .bad_icrc(bad_icrc), .malformed(malformed), .unknown_qp(unknown_qp),
        .bad_opcode(bad_opcode), .wrong_address(wrong_address)
    );

    // The port's counters
    rl_total total_tx_packets (.clk(clk), .clear(clear_totals), .enable(sent), .add(1'b1), .snapshot(snapshot), .value(tx_packets));
    rl_total #(.WIDTH(16)) total_tx_bytes (.clk(clk), .clear(clear_totals), .enable(sent), .add(sent_bytes), .snapshot(snapshot), .value(tx_bytes));
    rl_total total_tx_dropped (.clk(clk), .clear(clear_totals), .enable(dropped), .add(1'b1), .snapshot(snapshot), .value(tx_dropped));
    rl_total total_rx_packets (.clk(clk), .clear(clear_totals), .enable(got), .add(1'b1), .snapshot(snapshot), .value(rx_packets));
    rl_total #(.WIDTH(16)) total_rx_bytes (.clk(clk), .clear(clear_totals), .enable(got), .add(got_bytes), .snapshot(snapshot), .value(rx_bytes));
    rl_total total_rx_bad_icrc (.clk(clk), .clear(clear_totals), .enable(bad_icrc), .add(1'b1), .snapshot(snapshot), .value(rx_bad_icrc));
    rl_total total_rx_malformed (.clk(clk), .clear(clear_totals), .enable(malformed), .add(1'b1), .snapshot(snapshot), .value(rx_malformed));
    rl_total #(.WIDTH(2)) total_rx_unknown_qp (.clk(clk), .clear(clear_totals), .enable(unknown_qp || orphan), .add({1'b0, unknown_qp} + {1'b0, orphan}), .snapshot(snapshot), .value(rx_unknown_qp));
    rl_total total_rx_bad_opcode (.clk(clk), .clear(clear_totals), .enable(bad_opcode), .add(1'b1), .snapshot(snapshot), .value(rx_bad_opcode));
    rl_total total_rx_wrong_address (.clk(clk), .clear(clear_totals), .enable(wrong_address), .add(1'b1), .snapshot(snapshot), .value(rx_wrong_address));

endmodule

`default_nettype wire
