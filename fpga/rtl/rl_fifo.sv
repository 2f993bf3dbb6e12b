// A queue in distributed RAM whose head is visible. Writing when full and
// reading when empty are the user's faults and do nothing.
`default_nettype none

module rl_fifo #(
    parameter WIDTH      = 8,
    parameter DEPTH_BITS = 4
) (
    input  wire              clk,
    input  wire              rst,

    input  wire              push,
    input  wire [WIDTH-1:0]  in,
    output wire              full,

    input  wire              pop,
    output wire [WIDTH-1:0]  out,
    output wire              empty
);

    reg [DEPTH_BITS:0] head, tail;

    assign empty = head == tail;
    assign full  = head == {~tail[DEPTH_BITS], tail[DEPTH_BITS-1:0]};

    wire put = push && !full;

    rl_table #(.WIDTH(WIDTH), .ADDRESS_BITS(DEPTH_BITS)) store (
        .clk(clk), .write(put), .waddress(tail[DEPTH_BITS-1:0]), .wdata(in),
        .raddress(head[DEPTH_BITS-1:0]), .rdata(out)
    );

    always @(posedge clk) begin
        if (rst) begin
            head <= 0;
            tail <= 0;
        end else begin
            if (put)
                tail <= tail + 1'b1;
            if (pop && !empty)
                head <= head + 1'b1;
        end
    end

endmodule

`default_nettype wire
