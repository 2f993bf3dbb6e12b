// One 64-bit counter for each queue pair, with a copy for the registers.
//
// add goes to the counter of index in the second cycle after enable; two events
// of one index are at least two cycles apart, so that nothing needs to be
// forwarded. clear sets the counter of index to zero. snapshot copies the
// counter of snapshot_index.
`default_nettype none

module rl_counter #(
    parameter WIDTH = 1 // of add
) (
    input  wire             clk,

    input  wire             enable,
    input  wire             clear,
    input  wire [3:0]       index,
    input  wire [WIDTH-1:0] add,

    input  wire             snapshot,
    input  wire [3:0]       snapshot_index,
    output reg  [63:0]      value
);

    wire [63:0] present, latched;
    reg         enabled, cleared;
    reg  [3:0]  at;
    reg  [63:0] base;
    reg  [WIDTH-1:0] more;

    always @(posedge clk) begin
        enabled <= enable;
        cleared <= clear;
        at      <= index;
        base    <= present;
        more    <= add;
        if (snapshot)
            value <= latched;
    end

    wire [63:0] total = cleared ? 64'd0 : base + {{(64-WIDTH){1'b0}}, more};

    rl_table #(.WIDTH(64)) counts (
        .clk(clk), .write(enabled || cleared), .waddress(at), .wdata(total), .raddress(index), .rdata(present)
    );
    rl_table #(.WIDTH(64)) copies (
        .clk(clk), .write(enabled || cleared), .waddress(at), .wdata(total), .raddress(snapshot_index), .rdata(latched)
    );

endmodule

`default_nettype wire
