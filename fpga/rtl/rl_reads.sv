// What READ brings: the frames of streams of verb Read, which are checked against
// the generator's pattern, and the Credit word of streams of verb Write.
//
// Responses come here one at a time, in order, each once: the transport has seen
// to that. rl_check has looked at the payload by itself; what is left is whether
// its head is the one that was to come. Two responses of a queue pair are at
// least four cycles apart.
`default_nettype none

module rl_reads #(
    parameter QUEUE_PAIRS = 8,
    parameter CLOCK_KHZ   = 250000
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [43:0]  now,

    // Commands
    input  wire         commit,
    input  wire         clear,
    input  wire [3:0]   index,
    input  wire         prbs,
    input  wire [31:0]  slots,

    // Responses
    input  wire         taken,
    input  wire [3:0]   qp,
    input  wire         credit,
    input  wire         starts,
    input  wire         ends,
    input  wire [21:0]  word,
    input  wire [170:0] event_data,
    output reg          idle,

    // The Credit word: how many frames are released, and when it may be read
    // again. seen changes with each response.
    input  wire [3:0]   look_qp,
    output wire [63:0]  look_released,
    output wire         look_seen,
    output wire [43:0]  look_again,

    // Frames delivered to the peer, from an event on until the next one
    input  wire         delivered,
    input  wire [3:0]   delivered_qp,
    input  wire [15:0]  delivered_frames,
    input  wire [31:0]  delivered_bytes,

    // Registers
    input  wire         snapshot,
    output reg  [63:0]  stat_released,

    // Counters
    input  wire         sweep,
    input  wire         wipe,
    input  wire [4:0]   sweep_number,
    output wire [63:0]  counted
);

`include "rl_wire.vh"
`include "rl_counts.vh"

    // The Credit word is read every 20 µs while nothing else can be done.
    localparam [63:0] AGAIN = (CLOCK_KHZ * 64'd20 + 999) / 1000;

    // Stage 1: the response.
    reg         valid1, credit1, starts1, ends1;
    reg  [3:0]  qp1;
    reg  [31:0] index1;
    reg  [12:0] length1;
    reg  [63:0] head1;
    reg  [30:0] tail1;
    reg         counter1, prbs1;
    always @(posedge clk) begin
        valid1   <= taken && !rst;
        credit1  <= credit;
        starts1  <= starts;
        ends1    <= ends;
        qp1      <= qp;
        index1   <= {10'd0, word};
        length1  <= event_data[RL_EVENT_LENGTH +: 13];
        head1    <= event_data[RL_EVENT_HEAD +: 64];
        tail1    <= event_data[RL_EVENT_TAIL +: 31];
        counter1 <= event_data[RL_EVENT_COUNTER];
        prbs1    <= event_data[RL_EVENT_PRBS];
    end

    // Stage 2: where the stream is.
    wire [32:0] config_now;
    wire [63:0] place_now;
    rl_table #(.WIDTH(33)) configs (
        .clk(clk), .write(commit), .waddress(index), .wdata({prbs, slots - 32'd1}), .raddress(qp1), .rdata(config_now)
    );
    reg         place_write;
    reg  [3:0]  place_qp;
    reg  [63:0] place_next;
    rl_table #(.WIDTH(64)) places (
        .clk(clk), .write(place_write), .waddress(place_qp), .wdata(place_next), .raddress(qp1), .rdata(place_now)
    );
    reg         valid2, starts2, ends2, kind2, good2, consistent2;
    reg  [3:0]  qp2;
    reg  [31:0] slot2, last2;
    reg  [30:0] before2, tail2; // the 31 bits before this payload, and its last
    reg  [31:0] index2;
    reg  [63:0] head2;
    reg  [7:0]  lanes2;
    // See pattern.Seed.
    wire [31:0] slot1 = place_now[31:0];
    wire [30:0] seed1 = {slot1[29:0] ^ 30'h2b5cf0a3, 1'b1};
    integer     n;
    always @(posedge clk) begin
        valid2      <= valid1 && !credit1 && !rst;
        starts2     <= starts1;
        ends2       <= ends1;
        qp2         <= qp1;
        {kind2, last2} <= config_now;
        slot2       <= slot1;
        good2       <= starts1 || place_now[32];
        before2     <= starts1 ? seed1 : place_now[63:33];
        tail2       <= tail1;
        index2      <= index1;
        head2       <= head1;
        consistent2 <= config_now[32] ? prbs1 : counter1;
        for (n = 0; n < 8; n = n + 1)
            lanes2[n] <= length1 > n[12:0] && !(config_now[32] && n >= 4); // what follows is in prbs1
    end

    // Stage 3: byte by byte.
    reg  [62:0] run2;
    wire [63:0] should2 = kind2 ? {32'd0, run2[62:31]} : {slot2, index2};
    reg         valid3, ends3, good3;
    reg  [3:0]  qp3;
    reg  [31:0] slot3;
    reg         wraps3;    // the next slot is the ring's first
    reg  [30:0] tail3;
    reg  [7:0]  wrong3;
    always @* begin
        run2 = {32'd0, before2};
        for (n = 31; n < 63; n = n + 1)
            run2[n] = run2[n-28] ^ run2[n-31];
    end
    always @(posedge clk) begin
        valid3 <= valid2 && !rst;
        ends3  <= ends2;
        good3  <= good2 && consistent2;
        qp3    <= qp2;
        slot3  <= slot2;
        wraps3  <= slot2 == last2;
        tail3  <= tail2;
        for (n = 0; n < 8; n = n + 1)
            wrong3[n] <= lanes2[n] && head2[8*n +: 8] != should2[8*n +: 8];
    end

    // Stage 4: the result.
    wire good = good3 && wrong3 == 8'd0;
    reg  inc_good, inc_bad;
    always @(posedge clk) begin
        idle        <= !taken && !valid1 && !valid2 && !valid3 && !inc_good && !inc_bad;
        place_write <= valid3 || commit;
        place_qp    <= commit ? index : qp3;
        place_next  <= commit ? 64'd0 : {tail3, good, !ends3 ? slot3 : wraps3 ? 32'd0 : slot3 + 32'd1};
        inc_good    <= valid3 && ends3 && good;
        inc_bad     <= valid3 && ends3 && !good;
        if (rst)
            place_write <= 1'b0;
    end

    // Counters: of an event five cycles before the next, the first two are for what was
    // delivered and the fourth for the frame that a response ends.
    reg         later;
    reg         count;
    reg  [4:0]  count_number;
    reg  [31:0] count_add;
    always @(posedge clk)
        later <= delivered && !rst;
    always @* begin
        count        = inc_good || inc_bad;
        count_number = inc_good ? RL_COUNT_READ_GOOD : RL_COUNT_READ_BAD;
        count_add    = 32'd1;
        if (delivered) begin
            count        = 1'b1;
            count_number = RL_COUNT_FRAMES_DONE;
            count_add    = {16'd0, delivered_frames};
        end
        if (later) begin
            count        = 1'b1;
            count_number = RL_COUNT_BYTES_DONE;
            count_add    = delivered_bytes;
        end
    end
    rl_counts #(.QUEUE_PAIRS(QUEUE_PAIRS)) counts (
        .clk(clk), .enable(count), .qp((delivered || later) ? delivered_qp : place_qp), .number(count_number), .add(count_add),
        .sweep(sweep), .wipe(wipe), .sweep_qp(index), .sweep_number(sweep_number), .value(counted)
    );

    // The Credit word.
    wire [108:0] credit_now;
    reg          credit_write;
    reg  [3:0]   credit_qp;
    reg  [108:0] credit_next;
    wire         seen_now;
    rl_table #(.WIDTH(109)) credits (
        .clk(clk), .write(credit_write), .waddress(credit_qp), .wdata(credit_next), .raddress(look_qp), .rdata(credit_now)
    );
    rl_table #(.WIDTH(1)) seens (
        .clk(clk), .write(credit_write), .waddress(credit_qp), .wdata(credit_next[64]), .raddress(qp1), .rdata(seen_now)
    );
    assign look_released = credit_now[63:0];
    assign look_seen     = credit_now[64];
    assign look_again    = credit_now[108:65];
    always @(posedge clk) begin
        credit_write <= valid1 && credit1 || commit || clear;
        credit_qp    <= (commit || clear) ? index : qp1;
        credit_next  <= (commit || clear) ? {now, 65'd0} : {now + AGAIN[43:0], !seen_now, head1};
        if (rst)
            credit_write <= 1'b0;
        if (snapshot)
            stat_released <= credit_now[63:0];
    end

endmodule

`default_nettype wire
