// The CRC register of the ICRC over frames of 64-byte beats, one beat a cycle.
//
// The caller has replaced the fields that the ICRC does not cover by ones, and
// the Ethernet header and everything behind the frame's end by zeros (see
// wire format: the register starts where 14 bytes of zeros lead to the right
// value). What a beat adds does not depend on the register, so that it takes
// three stages: its 512 powers of x are written as sums of 128 elements of the CRC's
// field, these of 64, and these of 32. Only the step of the register itself is a
// loop, and since the register is kept as a root of itself (see rl_icrc.vh), that
// is a shift by four with a few taps.
//
// crc_valid comes four cycles after the last beat; crc is the register after
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

    // Stage 1: 128 elements.
    reg [127:0] few;
    reg         valid1, first1, last1;
    genvar i;
    generate
        for (i = 0; i < 128; i = i + 1) begin : to_few
            always @(posedge clk)
                few[i] <= ^(data & RL_ICRC_FEW[512*i +: 512]);
        end
    endgenerate

    // Stage 2: 64 elements.
    reg [63:0]  less;
    reg         valid2, first2, last2;
    generate
        for (i = 0; i < 64; i = i + 1) begin : to_less
            always @(posedge clk)
                less[i] <= ^(few & RL_ICRC_LESS[128*i +: 128]);
        end
    endgenerate

    // Stage 3: what they add.
    reg [31:0]  sum;
    reg         valid3, first3, last3;
    generate
        for (i = 0; i < 32; i = i + 1) begin : to_sum
            always @(posedge clk)
                sum[i] <= ^(less & RL_ICRC_SUM[64*i +: 64]);
        end
    endgenerate

    // Stage 4: the register.
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
        valid3 <= valid2 && !rst;
        first3 <= first2;
        last3  <= last2;
        if (valid3)
            crc <= sum ^ (first3 ? RL_ICRC_START_STEP : step);
        crc_valid <= valid3 && last3 && !rst;
    end

endmodule

`default_nettype wire
