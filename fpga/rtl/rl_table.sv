// A small memory, read without a clock: distributed RAM. Two read ports are two
// copies.
`default_nettype none

module rl_table #(
    parameter WIDTH        = 8,
    parameter ADDRESS_BITS = 4
) (
    input  wire                    clk,
    input  wire                    write,
    input  wire [ADDRESS_BITS-1:0] waddress,
    input  wire [WIDTH-1:0]        wdata,
    input  wire [ADDRESS_BITS-1:0] raddress,
    output wire [WIDTH-1:0]        rdata
);

    (* ram_style = "distributed" *)
    reg [WIDTH-1:0] memory [0:(1<<ADDRESS_BITS)-1];

    always @(posedge clk)
        if (write)
            memory[waddress] <= wdata;

    assign rdata = memory[raddress];

endmodule

`default_nettype wire
