// The queue before the MAC, which may stop at any beat while a frame has no gap.
//
// A MAC that takes nothing for STALL_LIMIT cycles, or whose link is down, must
// not hold up the core: frames are dropped and counted until it takes beats
// again. A frame of which the MAC has a part ends with an error mark.
`default_nettype none

module rl_tx_out #(
    parameter STALL_BITS = 17 // 2^17 cycles: longer than any pause that a peer can ask for
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         link_up,

    // Frames
    input  wire         s_valid,
    input  wire         s_first,
    input  wire         s_last,
    input  wire [3:0]   s_tail,
    input  wire [511:0] s_data,
    output reg          freed,

    // MAC
    output reg          m_axis_tvalid,
    input  wire         m_axis_tready,
    output reg  [511:0] m_axis_tdata,
    output reg  [63:0]  m_axis_tkeep,
    output reg          m_axis_tlast,
    output reg          m_axis_tuser,

    // Counters
    output reg          sent,
    output reg  [15:0]  sent_bytes,
    output reg          dropped
);

`include "rl_wire.vh"

    wire         some, first, last;
    wire [3:0]   tail;
    wire [511:0] data;
    wire         pop;
    rl_queue #(.WIDTH(518), .DEPTH_BITS(5)) queue (
        .clk(clk), .rst(rst), .push(s_valid), .in({s_first, s_last, s_tail, s_data}), .full(),
        .pop(pop), .out({first, last, tail, data}), .valid(some), .empty()
    );

    // A frame of 58 bytes, a SEND without payload, is padded as Ethernet asks.
    wire [5:0]  length = (first && tail == 4'd14) ? 6'd60 : {tail, 2'b10};
    wire [63:0] keep = first_bytes({!last, length});

    reg [STALL_BITS:0] stalled;
    reg         dead;   // the MAC takes nothing
    reg         halfway; // the MAC has the beginning of a frame, or it is at its port
    reg         skip;   // the rest of the frame in the queue is dropped
    reg         abort;  // the MAC is owed the end of a frame
    reg  [9:0]  beats;
    wire        ready   = !m_axis_tvalid || m_axis_tready;
    wire        load    = some && !dead && !skip && !abort && ready;
    wire        discard = some && (dead || skip);
    wire        partly  = load ? !last : halfway;

    assign pop = load || discard;

    always @(posedge clk) begin
        sent       <= load && last;
        dropped    <= discard && last;
        sent_bytes <= {beats, tail, 2'b10};
        freed      <= pop;
        stalled    <= ready ? {(STALL_BITS+1){1'b0}} : stalled + 1'b1;

        if (m_axis_tready)
            m_axis_tvalid <= 1'b0;
        if (load) begin
            m_axis_tvalid <= 1'b1;
            m_axis_tdata  <= data;
            m_axis_tkeep  <= keep;
            m_axis_tlast  <= last;
            m_axis_tuser  <= 1'b0;
            beats         <= last ? 10'd0 : beats + 10'd1;
        end else if (abort && ready) begin
            m_axis_tvalid <= 1'b1;
            m_axis_tlast  <= 1'b1;
            m_axis_tuser  <= 1'b1;
            abort         <= 1'b0;
        end
        halfway <= partly;
        if (discard)
            skip <= !last;

        if (!dead && (!link_up || stalled[STALL_BITS])) begin
            dead   <= 1'b1;
            beats  <= 10'd0;
            halfway <= 1'b0;
            if (partly) begin
                skip  <= 1'b1;
                abort <= 1'b1;
            end
        end else if (dead && link_up && ready)
            dead <= 1'b0;

        if (rst) begin
            m_axis_tvalid <= 1'b0;
            m_axis_tlast  <= 1'b0;
            m_axis_tuser  <= 1'b0;
            dead          <= 1'b0;
            halfway        <= 1'b0;
            skip          <= 1'b0;
            abort         <= 1'b0;
            beats         <= 10'd0;
            stalled       <= 0;
            sent          <= 1'b0;
            dropped       <= 1'b0;
            freed         <= 1'b0;
        end
    end

endmodule

`default_nettype wire
