// Looks at the payload of READ responses while they pass: is it a part of what
// the generator makes? It is judged by itself, whatever it should be a part of:
// the head is reported, and whether all that follows it follows from it, as
// counter and as PRBS31. Whose packet it is, and whether this head was to come,
// is decided when it is its turn (rl_reads). So frames that get lost, come twice
// or are damaged leave nothing behind here.
//
// Payload begins at byte 58, behind an AETH, or at byte 54, so that its words
// lie across those of the datapath; nothing is rotated. The results of a frame
// stand in the fifth cycle after its last beat went in.
`default_nettype none

module rl_check (
    input  wire         clk,

    // Frames; ends says how far the payload reaches from the beginning of the beat
    input  wire         valid,
    input  wire         first,
    input  wire         aeth,  // with the first beat
    input  wire [16:0]  ends,
    input  wire [511:0] data,

    output reg  [63:0]  head,  // the first eight bytes
    output reg  [30:0]  tail,  // the last 31 bits of a payload of whole beats
    output reg          counter,
    output reg          prbs
);

`include "rl_wire.vh"

    // Stage 1: whether there is payload, head and tail, and what a counter would
    // be: bytes below 54 belong to words of the beat before.
    reg         valid1, first1, aeth1, second;
    reg [511:0] data1;
    reg [63:0]  mask1;
    reg [63:0]  head1;
    reg [30:0]  tail1;
    reg [28:0]  group1;       // index of a word / 8
    reg [63:0]  low1, high1;  // eight bytes, by the lower three bits of their place
    wire        behind = first ? aeth : aeth1;
    wire [63:0] head_now = first ? (aeth ? {head1[63:48], data[8*58 +: 48]} : data[8*54 +: 64]) :
                           (second && aeth1) ? {data[15:0], head1[47:0]} : head1;
    wire [28:0] group_now = first ? head_now[31:3] : group1 + 29'd1;

    // word is what begins at byte 54 or 58, placed so.
    function [63:0] placed(input [63:0] word, input after);
        placed = after ? {word[47:0], word[63:48]} : {word[15:0], word[63:16]};
    endfunction

    wire [63:0] mask = bytes_before(ends);
    genvar b;
    generate
        for (b = 0; b < 64; b = b + 1) begin : masks
            always @(posedge clk)
                if (b < 58)
                    mask1[b] <= mask[b] && !first;
                else if (b < 62)
                    mask1[b] <= mask[b] && !(first && aeth);
                else
                    mask1[b] <= mask[b];
        end
    endgenerate

    always @(posedge clk) begin
        valid1 <= valid;
        first1 <= first;
        data1  <= data;
        if (valid) begin
            second <= first;
            aeth1  <= behind;
            head1  <= head_now;
            group1 <= group_now;
            low1   <= placed({head_now[63:32], group1, 3'd0}, behind);
            high1  <= placed({head_now[63:32], group_now, 3'd0}, behind);
            if (ends != 17'd0)
                tail1 <= behind ? data[8*54+1 +: 31] : data[8*50+1 +: 31];
        end
    end

    // Stage 2: each byte. The lower three bits of an index are its place's.
    reg         valid2, first2;
    reg [30:0]  last1;   // bits of the beat before
    reg [63:0]  differs2, breaks2;
    reg [63:0]  head2;
    reg [30:0]  tail2;
    wire [542:0] bits = {data1, last1};
    generate
        for (b = 0; b < 64; b = b + 1) begin : bytes
            localparam [31:0] WORD    = b / 8;
            localparam [31:0] PLACE   = (b - 54) / 8;
            localparam [31:0] PLACE_A = (b - 58) / 8;
            wire [7:0] plain = (b < 54) ? low1[8*(b%8) +: 8] : high1[8*(b%8) +: 8];
            wire [2:0] lower = (b % 8 == 6 && !aeth1) ? ((b < 54) ? WORD[2:0] + 3'd2 : PLACE[2:0]) :
                               (b % 8 == 2 && aeth1)  ? ((b < 58) ? WORD[2:0] + 3'd1 : PLACE_A[2:0]) : plain[2:0];
            always @(posedge clk) begin
                differs2[b] <= mask1[b] && data1[8*b +: 8] != {plain[7:3], lower};
                breaks2[b]  <= mask1[b] && (bits[31+8*b +: 8] ^ bits[3+8*b +: 8] ^ bits[8*b +: 8]) != 8'd0;
            end
        end
    endgenerate
    always @(posedge clk) begin
        valid2 <= valid1;
        first2 <= first1;
        head2  <= head1;
        tail2  <= tail1;
        if (valid1)
            last1 <= data1[511:481];
    end

    // Stage 3: eight bytes; stage 4: all bytes; stage 5: all beats.
    reg         valid3, first3, valid4, first4, differs4, breaks4;
    reg [7:0]   differs3, breaks3;
    reg [63:0]  head3, head4;
    reg [30:0]  tail3, tail4;
    integer     g;
    always @(posedge clk) begin
        valid3   <= valid2;
        first3   <= first2;
        head3    <= head2;
        tail3    <= tail2;
        for (g = 0; g < 8; g = g + 1) begin
            differs3[g] <= differs2[8*g +: 8] != 8'd0;
            breaks3[g]  <= breaks2[8*g +: 8] != 8'd0;
        end
        valid4   <= valid3;
        first4   <= first3;
        head4    <= head3;
        tail4    <= tail3;
        differs4 <= differs3 != 8'd0;
        breaks4  <= breaks3 != 8'd0;
        head     <= head4;
        tail     <= tail4;
        if (valid4) begin
            counter <= !differs4 && (first4 || counter);
            prbs    <= !breaks4 && (first4 || prbs);
        end
    end

endmodule

`default_nettype wire
