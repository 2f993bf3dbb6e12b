// A small memory whose read takes a cycle: block RAM. What is read while it is
// written is not defined.
`default_nettype none

module rl_store #(
    parameter WIDTH        = 8,
    parameter ADDRESS_BITS = 4
) (
    input  wire                    clk,
    input  wire                    write,
    input  wire [ADDRESS_BITS-1:0] waddress,
    input  wire [WIDTH-1:0]        wdata,
    input  wire                    read,
    input  wire [ADDRESS_BITS-1:0] raddress,
    output reg  [WIDTH-1:0]        rdata
);

    (* ram_style = "block" *)
    reg [WIDTH-1:0] memory [0:(1<<ADDRESS_BITS)-1];

    always @(posedge clk) begin
        if (write)
            memory[waddress] <= wdata;
        if (read)
            rdata <= memory[raddress];
    end

endmodule

`default_nettype wire
