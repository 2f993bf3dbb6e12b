// What lies between the MAC and the processor: the core, its AXI4-Lite slave and
// the slow path, all in the MAC's user clock. Frames for the core pass the
// splitter, all others go to rl_slow_reply, whose answers leave between the
// core's frames.
//
//  s_axis ─ rl_slow_rx ─► core ──────────────► rl_slow_tx ─ m_axis
//                └─ buffer ─ rl_slow_reply ────────┘
`default_nettype none

module rl_shell #(
    parameter        QUEUE_PAIRS     = 8,
    parameter        CLOCK_KHZ       = 322266, // the user clock of a CMAC at 100 Gb/s, 322.265625 MHz (PG203)
    parameter [31:0] BUILD           = 32'd0,
    parameter        STALL_BITS      = 17,
    parameter        EXTERNAL        = 0,
    parameter [3:0]  EXTERNAL_STREAM = 4'd0
) (
    input  wire         clk,
    input  wire         rst,          // one cycle is enough
    input  wire [31:0]  boot,         // differs after each start, or 0
    input  wire         link_up,

    // Registers
    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [16:0]  s_axil_awaddr,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    input  wire [31:0]  s_axil_wdata,
    input  wire [3:0]   s_axil_wstrb,
    output wire         s_axil_bvalid,
    input  wire         s_axil_bready,
    output wire [1:0]   s_axil_bresp,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    input  wire [16:0]  s_axil_araddr,
    output wire         s_axil_rvalid,
    input  wire         s_axil_rready,
    output wire [31:0]  s_axil_rdata,
    output wire [1:0]   s_axil_rresp,

    // MAC, from here
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tlast,
    output wire         m_axis_tuser,

    // MAC, to here
    input  wire         s_axis_tvalid,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,

    // External source, see rl_core
    input  wire         s_source_tvalid,
    output wire         s_source_tready,
    input  wire [511:0] s_source_tdata,
    input  wire [63:0]  s_source_tkeep,
    input  wire         s_source_tlast,
    input  wire         s_source_lossy,

    // Frames of the slow path since the reset
    output wire [63:0]  answered_arp,
    output wire [63:0]  answered_echo,
    output wire [63:0]  unanswered,   // neither of the two, or wrong
    output wire [63:0]  overrun       // no room in the buffer
);

    wire         bus_write;
    wire [15:0]  bus_address;
    wire [31:0]  bus_wdata, bus_rdata;

    rl_axil axil (
        .clk(clk), .rst(rst),
        .s_axil_awvalid(s_axil_awvalid), .s_axil_awready(s_axil_awready), .s_axil_awaddr(s_axil_awaddr),
        .s_axil_wvalid(s_axil_wvalid), .s_axil_wready(s_axil_wready), .s_axil_wdata(s_axil_wdata),
        .s_axil_wstrb(s_axil_wstrb), .s_axil_bvalid(s_axil_bvalid), .s_axil_bready(s_axil_bready),
        .s_axil_bresp(s_axil_bresp), .s_axil_arvalid(s_axil_arvalid), .s_axil_arready(s_axil_arready),
        .s_axil_araddr(s_axil_araddr), .s_axil_rvalid(s_axil_rvalid), .s_axil_rready(s_axil_rready),
        .s_axil_rdata(s_axil_rdata), .s_axil_rresp(s_axil_rresp),
        .bus_write(bus_write), .bus_address(bus_address), .bus_wdata(bus_wdata), .bus_rdata(bus_rdata)
    );

    wire [47:0]  local_mac;
    wire [127:0] local_ip;
    wire         rx_tvalid, rx_tlast, rx_tuser;
    wire [511:0] rx_tdata;
    wire [63:0]  rx_tkeep;
    wire         tx_tvalid, tx_tready, tx_tlast, tx_tuser;
    wire [511:0] tx_tdata;
    wire [63:0]  tx_tkeep;

    rl_core #(
        .QUEUE_PAIRS(QUEUE_PAIRS), .CLOCK_KHZ(CLOCK_KHZ), .BUILD(BUILD), .STALL_BITS(STALL_BITS),
        .EXTERNAL(EXTERNAL), .EXTERNAL_STREAM(EXTERNAL_STREAM)
    ) core (
        .clk(clk), .rst(rst), .boot(boot),
        .bus_write(bus_write), .bus_address(bus_address), .bus_wdata(bus_wdata), .bus_rdata(bus_rdata),
        .local_mac(local_mac), .local_ip(local_ip), .link_up(link_up),
        .m_axis_tvalid(tx_tvalid), .m_axis_tready(tx_tready), .m_axis_tdata(tx_tdata),
        .m_axis_tkeep(tx_tkeep), .m_axis_tlast(tx_tlast), .m_axis_tuser(tx_tuser),
        .s_axis_tvalid(rx_tvalid), .s_axis_tdata(rx_tdata), .s_axis_tkeep(rx_tkeep),
        .s_axis_tlast(rx_tlast), .s_axis_tuser(rx_tuser),
        .s_source_tvalid(s_source_tvalid), .s_source_tready(s_source_tready), .s_source_tdata(s_source_tdata),
        .s_source_tkeep(s_source_tkeep), .s_source_tlast(s_source_tlast), .s_source_lossy(s_source_lossy)
    );

    wire         other_tvalid, other_tready, other_tlast;
    wire [511:0] other_tdata;
    wire [63:0]  other_tkeep;
    wire         answer_tvalid, answer_tready, answer_tlast;
    wire [511:0] answer_tdata;
    wire [63:0]  answer_tkeep;

    rl_slow_rx split (
        .clk(clk), .rst(rst),
        .s_axis_tvalid(s_axis_tvalid), .s_axis_tdata(s_axis_tdata), .s_axis_tkeep(s_axis_tkeep),
        .s_axis_tlast(s_axis_tlast), .s_axis_tuser(s_axis_tuser),
        .m_core_tvalid(rx_tvalid), .m_core_tdata(rx_tdata), .m_core_tkeep(rx_tkeep),
        .m_core_tlast(rx_tlast), .m_core_tuser(rx_tuser),
        .m_slow_tvalid(other_tvalid), .m_slow_tready(other_tready), .m_slow_tdata(other_tdata),
        .m_slow_tkeep(other_tkeep), .m_slow_tlast(other_tlast),
        .dropped(overrun)
    );

    rl_slow_reply reply (
        .clk(clk), .rst(rst), .local_mac(local_mac), .local_ip(local_ip),
        .s_axis_tvalid(other_tvalid), .s_axis_tready(other_tready), .s_axis_tdata(other_tdata),
        .s_axis_tkeep(other_tkeep), .s_axis_tlast(other_tlast),
        .m_axis_tvalid(answer_tvalid), .m_axis_tready(answer_tready), .m_axis_tdata(answer_tdata),
        .m_axis_tkeep(answer_tkeep), .m_axis_tlast(answer_tlast),
        .answered_arp(answered_arp), .answered_echo(answered_echo), .dropped(unanswered)
    );

    rl_slow_tx merge (
        .clk(clk), .rst(rst),
        .s_core_tvalid(tx_tvalid), .s_core_tready(tx_tready), .s_core_tdata(tx_tdata),
        .s_core_tkeep(tx_tkeep), .s_core_tlast(tx_tlast), .s_core_tuser(tx_tuser),
        .s_slow_tvalid(answer_tvalid), .s_slow_tready(answer_tready), .s_slow_tdata(answer_tdata),
        .s_slow_tkeep(answer_tkeep), .s_slow_tlast(answer_tlast),
        .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .m_axis_tdata(m_axis_tdata),
        .m_axis_tkeep(m_axis_tkeep), .m_axis_tlast(m_axis_tlast), .m_axis_tuser(m_axis_tuser)
    );

endmodule

`default_nettype wire
