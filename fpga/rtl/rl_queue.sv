// A queue in block RAM whose head is visible, two cycles after it was put in.
// Writing when full and reading when not valid are the user's faults and do nothing.
`default_nettype none

module rl_queue #(
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
    output reg               valid,
    output wire              empty  // as soon as the last was taken, and until one is put in
);

    reg  [DEPTH_BITS:0] head, tail;
    wire [DEPTH_BITS:0] next = head + {{DEPTH_BITS{1'b0}}, pop && valid};

    assign empty = head == tail;
    assign full  = head == {~tail[DEPTH_BITS], tail[DEPTH_BITS-1:0]};

    wire put = push && !full;

    rl_store #(.WIDTH(WIDTH), .ADDRESS_BITS(DEPTH_BITS)) store (
        .clk(clk), .write(put), .waddress(tail[DEPTH_BITS-1:0]), .wdata(in),
        .read(1'b1), .raddress(next[DEPTH_BITS-1:0]), .rdata(out)
    );

    always @(posedge clk) begin
        head  <= next;
        valid <= next != tail && !rst;
        if (put)
            tail <= tail + 1'b1;
        if (rst) begin
            head <= 0;
            tail <= 0;
        end
    end

endmodule

`default_nettype wire
