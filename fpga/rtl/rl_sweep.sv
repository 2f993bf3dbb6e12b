// Goes over the counters of a queue pair and its stream, one a cycle, while the
// machines stand still: sets them to zero, or latches them into the memory that
// the registers are read from.
`default_nettype none

module rl_sweep (
    input  wire        clk,
    input  wire        rst,

    // Commands
    input  wire        wipe_qp,
    input  wire        wipe_stream,
    input  wire        wipe_all,  // and the memory of the registers
    input  wire        snapshot,
    output wire        busy,

    // The counters; value comes two cycles after number
    output wire        wipe,
    output wire [4:0]  number,
    input  wire [63:0] value,

    // The registers' bus
    input  wire [4:0]  bus_number,
    input  wire        bus_high,
    output wire [31:0] bus_rdata
);

`include "rl_counts.vh"

    reg  [5:0] step;
    reg        wipes_qp, wipes_stream, wipes_all, latches;
    reg  [4:0] step1, step2;
    reg        latch1, latch2, high;
    wire       of_stream = step[4:0] >= RL_COUNT_SOURCE_FRAMES && step[4:0] <= RL_COUNT_CREDIT_READS;
    wire [63:0] latched;

    assign busy   = !step[5];
    assign wipe   = busy && (of_stream ? wipes_stream : wipes_qp);
    // A frame is posted as soon as it is taken: one counter, two registers.
    assign number = (step[4:0] == RL_COUNT_FRAMES_POSTED) ? RL_COUNT_SOURCE_FRAMES : step[4:0];
    assign bus_rdata = high ? latched[63:32] : latched[31:0];

    always @(posedge clk) begin
        if (busy)
            step <= step + 6'd1;
        if (wipe_qp || wipe_stream || snapshot) begin
            step         <= 6'd0;
            wipes_qp     <= wipe_qp;
            wipes_stream <= wipe_stream;
            wipes_all    <= wipe_all;
            latches      <= snapshot;
        end
        if (rst)
            step <= 6'd32;
        latch1 <= busy && (latches || wipes_all);
        latch2 <= latch1;
        step1  <= step[4:0];
        step2  <= step1;
        high   <= bus_high;
    end

    rl_store #(.WIDTH(64), .ADDRESS_BITS(5)) registers (
        .clk(clk), .write(latch2), .waddress(step2), .wdata(wipes_all ? 64'd0 : value),
        .read(1'b1), .raddress(bus_number), .rdata(latched)
    );

endmodule

`default_nettype wire
