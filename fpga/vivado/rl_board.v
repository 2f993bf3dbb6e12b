// The core with its slave and its slow path (rl_shell) as one cell of a block design, which
// takes plain Verilog as its top. All of it is in the MAC's user clock.
`default_nettype none

module rl_board #(
    parameter [31:0] BUILD = 32'd0
) (
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk CLK",
       X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axil:m_axis:s_axis, ASSOCIATED_RESET rst" *)
    input  wire         clk,
    (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 rst RST",
       X_INTERFACE_PARAMETER = "POLARITY ACTIVE_HIGH" *)
    input  wire         rst,
    input  wire         link_up,

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

    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tlast,
    output wire         m_axis_tuser,

    input  wire         s_axis_tvalid,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser
);

    rl_shell #(.BUILD(BUILD)) shell (
        .clk(clk), .rst(rst), .boot(32'd0), .link_up(link_up),
        .s_axil_awvalid(s_axil_awvalid), .s_axil_awready(s_axil_awready), .s_axil_awaddr(s_axil_awaddr),
        .s_axil_wvalid(s_axil_wvalid), .s_axil_wready(s_axil_wready), .s_axil_wdata(s_axil_wdata),
        .s_axil_wstrb(s_axil_wstrb), .s_axil_bvalid(s_axil_bvalid), .s_axil_bready(s_axil_bready),
        .s_axil_bresp(s_axil_bresp), .s_axil_arvalid(s_axil_arvalid), .s_axil_arready(s_axil_arready),
        .s_axil_araddr(s_axil_araddr), .s_axil_rvalid(s_axil_rvalid), .s_axil_rready(s_axil_rready),
        .s_axil_rdata(s_axil_rdata), .s_axil_rresp(s_axil_rresp),
        .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .m_axis_tdata(m_axis_tdata),
        .m_axis_tkeep(m_axis_tkeep), .m_axis_tlast(m_axis_tlast), .m_axis_tuser(m_axis_tuser),
        .s_axis_tvalid(s_axis_tvalid), .s_axis_tdata(s_axis_tdata), .s_axis_tkeep(s_axis_tkeep),
        .s_axis_tlast(s_axis_tlast), .s_axis_tuser(s_axis_tuser),
        .s_source_tvalid(1'b0), .s_source_tready(), .s_source_tdata(512'd0), .s_source_tkeep(64'd0),
        .s_source_tlast(1'b0), .s_source_lossy(1'b0),
        .answered_arp(), .answered_echo(), .unanswered(), .overrun()
    );

endmodule

`default_nettype wire
