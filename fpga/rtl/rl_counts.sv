// 64-bit counters of all queue pairs in a block RAM with one adder, an addition
// a cycle.
//
// An addition takes three cycles, during which nothing is added to the same
// counter: whoever counts has events that are at least four cycles apart, and
// gives each counter its own time in them. So nothing waits and nothing is lost.
//
// The sweep takes the memory while the machines stand still: value is the counter
// two cycles after its number, and wipe sets it to zero.
`default_nettype none

module rl_counts #(
    parameter QUEUE_PAIRS = 8
) (
    input  wire        clk,

    input  wire        enable,
    input  wire [3:0]  qp,
    input  wire [4:0]  number,
    input  wire [31:0] add,

    input  wire        sweep,
    input  wire        wipe,
    input  wire [3:0]  sweep_qp,
    input  wire [4:0]  sweep_number,
    output reg  [63:0] value
);

    localparam QP_BITS = (QUEUE_PAIRS > 8) ? 4 : (QUEUE_PAIRS > 4) ? 3 : (QUEUE_PAIRS > 2) ? 2 : 1;
    localparam BITS    = QP_BITS + 5;

    wire [3:0]      which = sweep ? sweep_qp : qp;
    wire [BITS-1:0] at    = {which[QP_BITS-1:0], sweep ? sweep_number : number};
    reg             enabled1, enabled2, wiped1, wiped2;
    reg  [BITS-1:0] at1, at2;
    reg  [31:0]     add1, add2;
    wire [63:0]     present;

    always @(posedge clk) begin
        enabled1 <= enable && !sweep;
        enabled2 <= enabled1;
        wiped1   <= wipe;
        wiped2   <= wiped1;
        at1      <= at;
        at2      <= at1;
        add1     <= add;
        add2     <= add1;
        value    <= present;
    end

    rl_store #(.WIDTH(64), .ADDRESS_BITS(BITS)) sums (
        .clk(clk), .write(enabled2 || wiped2), .waddress(at2), .wdata(wiped2 ? 64'd0 : value + {32'd0, add2}),
        .read(1'b1), .raddress(at), .rdata(present)
    );

endmodule

`default_nettype wire
