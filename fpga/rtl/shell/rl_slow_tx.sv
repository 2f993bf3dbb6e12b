// Puts frames of the slow path between those of the core. Where both wait, the
// core is first, and after a frame of the one the other has its turn: so neither
// waits longer than one frame. What was offered to the MAC stays.
//
// A frame of either side must come without a gap, since it is passed on as it is.
`default_nettype none

module rl_slow_tx (
    input  wire         clk,
    input  wire         rst,

    input  wire         s_core_tvalid,
    output wire         s_core_tready,
    input  wire [511:0] s_core_tdata,
    input  wire [63:0]  s_core_tkeep,
    input  wire         s_core_tlast,
    input  wire         s_core_tuser,

    input  wire         s_slow_tvalid,
    output wire         s_slow_tready,
    input  wire [511:0] s_slow_tdata,
    input  wire [63:0]  s_slow_tkeep,
    input  wire         s_slow_tlast,

    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tlast,
    output wire         m_axis_tuser
);

    reg open;  // a beat of this frame was offered
    reg owner; // 1: the frame is of the slow path
    reg turn;  // the last frame was the core's

    wire slow = open ? owner : s_slow_tvalid && (turn || !s_core_tvalid);

    assign m_axis_tvalid = (slow ? s_slow_tvalid : s_core_tvalid) && !rst;
    assign m_axis_tdata  = slow ? s_slow_tdata : s_core_tdata;
    assign m_axis_tkeep  = slow ? s_slow_tkeep : s_core_tkeep;
    assign m_axis_tlast  = slow ? s_slow_tlast : s_core_tlast;
    assign m_axis_tuser  = !slow && s_core_tuser;
    assign s_core_tready = m_axis_tready && !slow && !rst;
    assign s_slow_tready = m_axis_tready && slow && !rst;

    always @(posedge clk) begin
        if (m_axis_tvalid) begin
            open  <= !(m_axis_tready && m_axis_tlast);
            owner <= slow;
            turn  <= !slow;
        end
        if (rst) begin
            open  <= 1'b0;
            owner <= 1'b0;
            turn  <= 1'b0;
        end
    end

endmodule

`default_nettype wire
