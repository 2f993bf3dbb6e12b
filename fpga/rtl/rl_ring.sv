// The retransmit ring: one write and one read port of 64 bytes. A read takes
// two cycles; a beat that was not asked for reads as zeros, which costs nothing
// in the output register of the memory.
`default_nettype none

module rl_ring #(
    parameter ADDRESS_BITS = 15
) (
    input  wire                    clk,

    input  wire                    write,
    input  wire [ADDRESS_BITS-1:0] waddress,
    input  wire [511:0]            wdata,

    input  wire                    read,
    input  wire [ADDRESS_BITS-1:0] raddress,
    output reg  [511:0]            rdata
);

    (* ram_style = "ultra" *)
    reg [511:0] memory [0:(1<<ADDRESS_BITS)-1];
    reg [511:0] word;
    reg         asked;

    always @(posedge clk) begin
        if (write)
            memory[waddress] <= wdata;
        if (read)
            word <= memory[raddress];
        asked <= read;
        if (asked)
            rdata <= word;
        else
            rdata <= 512'd0;
    end

endmodule

`default_nettype wire
