// Splits what the MAC receives: IPv4 without options and UDP to port 4791 goes
// to the core, a cycle later, all else into a buffer of whole frames.
//
// The MAC cannot wait, so a frame that does not fit is dropped whole and counted.
// A frame that the MAC marks as bad is left out. After a reset, the rest of a
// frame that was under way is thrown away.
//
// The buffer is 8 block RAM of 512 beats: enough for the largest frame of the
// MAC, 9600 bytes, three times. A beat has at least one byte, so the first bit of
// tkeep is not kept.
`default_nettype none

module rl_slow_rx #(
    parameter BITS = 9 // the buffer has 2^BITS beats
) (
    input  wire         clk,
    input  wire         rst,

    input  wire         s_axis_tvalid,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,

    output reg          m_core_tvalid,
    output reg  [511:0] m_core_tdata,
    output reg  [63:0]  m_core_tkeep,
    output reg          m_core_tlast,
    output reg          m_core_tuser,

    // Without a gap inside a frame
    output wire         m_slow_tvalid,
    input  wire         m_slow_tready,
    output wire [511:0] m_slow_tdata,
    output wire [63:0]  m_slow_tkeep,
    output wire         m_slow_tlast,

    output reg  [63:0]  dropped
);

    reg [575:0]  buffer [0:(1<<BITS)-1];
    reg [575:0]  word;             // that of tail
    reg          there;
    reg [BITS:0] head, next, tail; // whole frames end at head, next is being written
    reg          open, skip, roce, lost;

    // A reset does not end a frame of the MAC: this goes on through it.
    initial open = 1'b0;

    wire first = !open;
    wire match = s_axis_tdata[12*8 +: 24] == 24'h450008 && s_axis_tdata[23*8 +: 8] == 8'd17 &&
                 s_axis_tdata[36*8 +: 16] == 16'hb712 && (&s_axis_tkeep[41:0]) &&
                 s_axis_tdata[20*8 +: 5] == 5'd0 && s_axis_tdata[21*8 +: 8] == 8'd0;
    wire take  = s_axis_tvalid && !skip && !rst;
    wire core  = first ? match : roce;
    wire slow  = take && !core;
    wire full  = next[BITS-1:0] == tail[BITS-1:0] && next[BITS] != tail[BITS];
    wire fails = full || (!first && lost);

    wire          pop   = there && m_slow_tready;
    wire [BITS:0] after = tail + {{BITS{1'b0}}, pop};

    assign m_slow_tvalid = there && !rst;
    assign m_slow_tdata  = word[511:0];
    assign m_slow_tkeep  = {word[574:512], 1'b1};
    assign m_slow_tlast  = word[575];

    always @(posedge clk) begin
        if (s_axis_tvalid)
            open <= !s_axis_tlast;
        if (s_axis_tvalid && s_axis_tlast)
            skip <= 1'b0;
        if (take) begin
            roce <= core;
            lost <= fails;
        end
        m_core_tvalid <= take && core;
        m_core_tdata  <= s_axis_tdata;
        m_core_tkeep  <= s_axis_tkeep;
        m_core_tlast  <= s_axis_tlast;
        m_core_tuser  <= s_axis_tuser;
        if (slow) begin
            if (!fails) begin
                buffer[next[BITS-1:0]] <= {s_axis_tlast, s_axis_tkeep[63:1], s_axis_tdata};
                next <= next + 1'b1;
            end
            if (s_axis_tlast) begin
                if (fails || s_axis_tuser)
                    next <= head;
                else
                    head <= next + 1'b1;
                if (fails && !s_axis_tuser)
                    dropped <= dropped + 64'd1;
            end
        end
        word  <= buffer[after[BITS-1:0]];
        there <= head != after;
        tail  <= after;
        if (rst) begin
            there         <= 1'b0;
            skip          <= s_axis_tvalid ? !s_axis_tlast : open;
            m_core_tvalid <= 1'b0;
            head          <= 0;
            next          <= 0;
            tail          <= 0;
            dropped       <= 64'd0;
        end
    end

endmodule

`default_nettype wire
