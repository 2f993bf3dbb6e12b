// One 64-bit counter of the port, with a copy for the registers. Its sum takes
// two cycles.
`default_nettype none

module rl_total #(
    parameter WIDTH = 1 // of add
) (
    input  wire             clk,

    input  wire             clear,
    input  wire             enable,
    input  wire [WIDTH-1:0] add,

    input  wire             snapshot,
    output reg  [63:0]      value
);

    reg             enabled;
    reg [WIDTH-1:0] more;
    reg [63:0]      count;

    always @(posedge clk) begin
        enabled <= enable && !clear;
        more    <= add;
        if (clear)
            count <= 64'd0;
        else if (enabled)
            count <= count + {{(64-WIDTH){1'b0}}, more};
        if (snapshot)
            value <= count;
    end

endmodule

`default_nettype wire
