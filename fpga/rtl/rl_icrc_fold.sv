// The CRC register of the ICRC over frames of 64-byte beats, one beat a cycle.
//
// The caller has replaced the fields that the ICRC does not cover by ones, and
// the Ethernet header and everything behind the frame's end by zeros (see
// wire format: the register starts where 14 bytes of zeros lead to the right
// value). What a beat adds does not depend on the register, so that it takes
// two stages; only the step of the register itself is a loop, 18 inputs wide.
//
// crc_valid comes three cycles after the last beat; crc is the register after
// the zeros behind the frame's end too.
`default_nettype none

module rl_icrc_fold (
    input  wire         clk,
    input  wire         rst,

    input  wire         valid,
    input  wire         first,
    input  wire         last,
    input  wire [511:0] data,

    output reg          crc_valid,
    output reg  [31:0]  crc
);

`include "rl_icrc.vh"

    // Stage 1: 16 groups of 32 bits.
    reg [511:0] part;
    reg         valid1, first1, last1;
    genvar g, i;
    generate
        for (g = 0; g < 16; g = g + 1) begin : group
            for (i = 0; i < 32; i = i + 1) begin : row
                always @(posedge clk)
                    part[32*g+i] <= ^(data[32*g +: 32] & RL_ICRC_FOLD[32*(32*g+i) +: 32]);
            end
        end
    endgenerate

    // Stage 2: their sum.
    reg  [31:0] sum;
    reg         valid2, first2, last2;
    wire [31:0] sum_next;
    generate
        for (i = 0; i < 32; i = i + 1) begin : column
            wire [15:0] bits;
            for (g = 0; g < 16; g = g + 1) begin : pick
                assign bits[g] = part[32*g+i];
            end
            assign sum_next[i] = ^bits;
        end
    endgenerate

    // Stage 3: the register.
    wire [31:0] step;
    generate
        for (i = 0; i < 32; i = i + 1) begin : feedback
            assign step[i] = ^(crc & RL_ICRC_STEP[32*i +: 32]);
        end
    endgenerate

    always @(posedge clk) begin
        valid1 <= valid && !rst;
        first1 <= first;
        last1  <= last;
        valid2 <= valid1 && !rst;
        first2 <= first1;
        last2  <= last1;
        sum    <= sum_next;
        if (valid2)
            crc <= sum ^ (first2 ? RL_ICRC_START_STEP : step);
        crc_valid <= valid2 && last2 && !rst;
    end

endmodule

`default_nettype wire
