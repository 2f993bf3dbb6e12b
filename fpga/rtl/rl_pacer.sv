// Spaces the frames of all streams by their rates, exactly over time.
//
// A stream owes debt, in bits times the clock in kHz: a frame adds its bits
// times CLOCK_KHZ, each cycle takes the rate in kb/s away, and never more than
// there is. A frame may leave while the debt is not above what the burst allows,
// or 128 cycles of it: a frame that leaves a little late is made up for, so
// that the rate is exact over time. Streams are visited in turn, one a cycle, for
// 16 cycles at once.
`default_nettype none

module rl_pacer (
    input  wire        clk,
    input  wire        rst,

    // Commit
    input  wire        set,
    input  wire [3:0]  set_index,
    input  wire [31:0] set_kbps,  // 0: no limit
    input  wire [49:0] set_cost,  // of a frame
    input  wire [63:0] set_allow,

    // A frame leaves
    input  wire        take,
    input  wire [3:0]  take_index,

    output reg  [15:0] may
);

    reg  [15:0] owed; // the cost of a frame is to be added
    reg  [15:0] free; // no limit
    reg  [3:0]  turn, at1, at2;
    reg         valid1, valid2;

    wire [31:0] kbps;
    wire [49:0] cost;
    wire [63:0] allow, debt;
    rl_table #(.WIDTH(146)) settings (
        .clk(clk), .write(set), .waddress(set_index), .wdata({set_kbps, set_cost, set_allow + {25'd0, set_kbps, 7'd0}}),
        .raddress(turn), .rdata({kbps, cost, allow})
    );

    reg  [63:0] debt1, allow1, debt2;
    reg  [49:0] add1;
    reg  [35:0] sub1;
    reg         free1, free2, owed1;
    reg  [63:0] allow2;
    wire [63:0] more = debt1 + {14'd0, add1};
    wire [63:0] next = (more < {28'd0, sub1}) ? 64'd0 : more - {28'd0, sub1};
    reg         stale1, stale2; // was set or took a frame meanwhile

    rl_table #(.WIDTH(64)) debts (
        .clk(clk), .write(valid1 && !stale1 || set), .waddress(set ? set_index : at1), .wdata(set ? 64'd0 : next),
        .raddress(turn), .rdata(debt)
    );

    integer k;
    always @(posedge clk) begin
        turn   <= turn + 4'd1;
        at1    <= turn;
        at2    <= at1;
        valid1 <= !rst;
        valid2 <= valid1 && !stale1 && !set && !rst;
        debt1  <= debt;
        allow1 <= allow;
        owed1  <= owed[turn];
        add1   <= owed[turn] ? cost : 50'd0;
        sub1   <= {kbps, 4'd0};
        free1  <= kbps == 32'd0;
        stale1 <= set;
        debt2  <= next;
        allow2 <= allow1;
        free2  <= free1;
        // Not one that came while this stream's turn was under way.
        for (k = 0; k < 16; k = k + 1) begin
            if (at1 == k[3:0] && valid1 && !stale1 && !set && owed1)
                owed[k] <= 1'b0;
            if (at2 == k[3:0] && valid2 && !owed[k])
                may[k] <= free2 || debt2 <= allow2;
            if (take_index == k[3:0] && take) begin
                owed[k] <= 1'b1;
                may[k]  <= free[k];
            end
            if (set_index == k[3:0] && set) begin
                owed[k] <= 1'b0;
                may[k]  <= 1'b1;
                free[k] <= set_kbps == 32'd0;
            end
        end
        if (rst) begin
            turn <= 4'd0;
            owed <= 16'd0;
            may  <= 16'd0;
            free <= 16'd0;
        end
    end

endmodule

`default_nettype wire
