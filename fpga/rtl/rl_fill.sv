// Writes packets' payload into the ring, a beat a cycle: frames of the traffic
// generator or of the external source, and the trailers that follow frames of verb Write.
//
// A PRBS31 frame begins with a state of 31 bits that takes four cycles to become
// 512; from there each beat follows from the one before, s[n] = s[n-448] ^
// s[n-496] (the recurrence squared four times). The last 31 bits of a packet are
// kept, so that frames of several queue pairs may alternate: a packet that follows another
// queue pair's begins with these as a frame does with its seed, and waits while
// they are still to be computed. Bytes behind the end of a packet are zeros.
`default_nettype none

module rl_fill #(
    parameter EXTERNAL = 0 // there is an external source
) (
    input  wire         clk,
    input  wire         rst,

    // Packets
    input  wire         s_valid,
    output wire         s_full,
    input  wire [3:0]   s_qp,
    input  wire [9:0]   s_position,
    input  wire [11:0]  s_start,   // first beat in the ring
    input  wire [12:0]  s_length,  // bytes
    input  wire         s_first,   // of its message
    input  wire         s_trailer,
    input  wire         s_prbs,
    input  wire         s_external, // its beats are the source's next ones
    input  wire [18:0]  s_offset,  // of its first beat in the frame, in beats
    input  wire [63:0]  s_sequence,
    input  wire [31:0]  s_frame,   // bytes of the frame that a trailer follows
    output wire         idle,

    // The external source: data comes four cycles after read
    output wire         source_read,
    input  wire [511:0] source_data,

    // Ring
    output reg          ring_write,
    output reg  [15:0]  ring_address,
    output reg  [511:0] ring_data,

    // Packets written: position is the one after
    output reg          filled,
    output reg  [3:0]   filled_qp,
    output reg  [9:0]   filled_position
);

`include "rl_wire.vh"

    localparam WIDTH = 4 + 10 + 12 + 13 + 4 + 19 + 64 + 32;

    wire        some, empty;
    wire        take;
    wire [3:0]  qp;
    wire [9:0]  position;
    wire [11:0] start;
    wire [12:0] length;
    wire        first, trailer, prbs, external;
    wire [18:0] offset;
    wire [63:0] sequence_n;
    wire [31:0] frame;
    rl_queue #(.WIDTH(WIDTH), .DEPTH_BITS(2)) packets (
        .clk(clk), .rst(rst), .push(s_valid),
        .in({s_qp, s_position, s_start, s_length, s_first, s_trailer, s_prbs, s_external, s_offset, s_sequence, s_frame}), .full(s_full),
        .pop(take), .out({qp, position, start, length, first, trailer, prbs, external, offset, sequence_n, frame}), .valid(some), .empty(empty)
    );

    // Stage 0: which beat. A packet without payload writes none, but passes.
    wire        pattern = prbs && !trailer;
    reg  [6:0]  beat;
    wire [12:0] rounded = length + 13'd63;
    wire        ends    = {1'b0, beat} + 8'd1 >= {1'b0, rounded[12:6]};
    reg         recent;   // the beat before was of a PRBS frame,
    reg  [3:0]  recent_qp; // of this queue pair
    wire        follows0 = pattern && (beat != 7'd0 || !first && recent && recent_qp == qp);
    reg  [4:0]  unkept;   // ends of packets whose last bits are on their way to keeps, of
    reg  [19:0] unkept_qp;
    reg         early;    // one of them is this queue pair's
    integer     k;
    always @* begin
        early = 1'b0;
        for (k = 0; k < 5; k = k + 1)
            if (unkept[k] && unkept_qp[4*k +: 4] == qp)
                early = 1'b1;
    end
    wire        waits = pattern && beat == 7'd0 && !first && !follows0 && early;
    wire        go    = some && !waits;
    assign take = go && ends;
    assign source_read = go && external && !trailer && length != 13'd0;

    // Stages 1 to 4: the first beat of a PRBS packet, from its seed or from
    // what was kept. A trailer goes the same way, and so does a counter.
    localparam BESIDE = 4 + 10 + 12 + 1 + 7 + 1 + 1 + 1 + 1;
    reg  [3:0]          busy;
    reg  [BESIDE-1:0]   beside1, beside2, beside3, beside4;
    reg                 trailer1, trailer2, trailer3, pattern1, pattern2, pattern3;
    reg  [63:0]         number1, number2, number3;
    reg  [31:0]         low1, low2, low3;
    wire [11:0]         at0     = start + {5'd0, beat};
    wire [18:0]         offset0 = offset + {12'd0, beat};
    wire [12:0]         rest0 = length - {beat, 6'd0};
    always @(posedge clk) begin
        if (rst || !some)
            beat <= 7'd0;
        else if (go)
            beat <= ends ? 7'd0 : beat + 7'd1;
        if (go) begin
            recent    <= pattern;
            recent_qp <= qp;
        end
        if (rst)
            recent <= 1'b0;
        busy      <= rst ? 4'd0 : {busy[2:0], go};
        unkept    <= rst ? 5'd0 : {unkept[3:0], go && ends && pattern};
        unkept_qp <= {unkept_qp[15:0], qp};
        beside1 <= {qp, position, at0, external && !trailer, ends ? rest0[6:0] : 7'd64, follows0, ends, pattern, length != 13'd0};
        beside2 <= beside1;
        beside3 <= beside2;
        beside4 <= beside3;
        trailer1 <= trailer;
        trailer2 <= trailer1;
        trailer3 <= trailer2;
        pattern1 <= pattern;
        pattern2 <= pattern1;
        pattern3 <= pattern2;
        number1  <= sequence_n + {63'd0, trailer};
        number2  <= number1;
        number3  <= number2;
        low1     <= trailer ? frame : {10'd0, offset0, 3'd0};
        low2     <= low1;
        low3     <= low2;
    end

    // Bytes behind a trailer's 16 are masked.
    wire [511:0] other3;
    genvar j;
    generate
        assign other3[63:0]   = {trailer3 ? 32'd0 : number3[31:0], low3};
        assign other3[127:64] = trailer3 ? number3 : {number3[31:0], low3[31:3], 3'd1};
        for (j = 2; j < 8; j = j + 1) begin : counter
            assign other3[64*j +: 64] = {number3[31:0], low3[31:3], j[2:0]};
        end
    endgenerate

    // e is the state and what follows it; see pattern.Seed for the seed.
    wire [30:0]  kept;
    wire [29:0]  seed = sequence_n[29:0] ^ 30'h2b5cf0a3;
    reg  [61:0]  e1;
    reg  [123:0] e2;
    reg  [247:0] e3;
    reg  [511:0] e4; // without the state
    reg  [61:0]  n1;
    reg  [123:0] n2;
    reg  [247:0] n3;
    reg  [542:0] n4;
    integer      n;
    always @* begin
        n1 = {31'd0, first ? {seed, 1'b1} : kept};
        for (n = 31; n < 62; n = n + 1)
            n1[n] = n1[n-28] ^ n1[n-31];
        n2 = {62'd0, e1};
        for (n = 62; n < 124; n = n + 1)
            n2[n] = n2[n-56] ^ n2[n-62];
        n3 = {124'd0, e2};
        for (n = 124; n < 248; n = n + 1)
            n3[n] = n3[n-112] ^ n3[n-124];
        n4 = {295'd0, e3};
        for (n = 248; n < 543; n = n + 1)
            n4[n] = n4[n-224] ^ n4[n-248];
    end
    always @(posedge clk) begin
        e1 <= n1;
        e2 <= n2;
        e3 <= n3;
        e4 <= pattern3 ? n4[542:31] : other3;
    end

    // Stage 5: the beat.
    wire        valid4 = busy[3];
    wire [3:0]  qp4;
    wire [9:0]  position4;
    wire [11:0] at4;
    wire [6:0]  rest4;
    wire        external4, follows4, ends4, pattern4, some4;
    assign {qp4, position4, at4, external4, rest4, follows4, ends4, pattern4, some4} = beside4;

    reg          valid5, ends5, pattern5, some5;
    reg  [3:0]   qp5;
    reg  [511:0] beat5;
    wire [511:0] follows;
    generate
        for (j = 0; j < 512; j = j + 1) begin : recurrence
            if (j < 448)
                assign follows[j] = beat5[j+64] ^ beat5[j+16];
            else if (j < 496)
                assign follows[j] = beat5[j-384] ^ beat5[j-432] ^ beat5[j+16];
            else
                assign follows[j] = beat5[j-384] ^ beat5[j-480];
        end
    endgenerate

    reg [9:0]   position5;
    reg [11:0]  at5;
    reg [63:0]  beyond5;
    always @(posedge clk) begin
        valid5   <= valid4 && !rst;
        ends5    <= ends4;
        pattern5 <= pattern4;
        some5    <= some4;
        qp5      <= qp4;
        position5 <= position4;
        at5      <= at4;
        if (valid4)
            beat5 <= follows4 ? follows : (EXTERNAL != 0 && external4) ? source_data : e4;
    end
    always @(posedge clk)
        beyond5 <= ~first_bytes(rest4);

    rl_table #(.WIDTH(31)) keeps (
        .clk(clk), .write(valid5 && ends5 && pattern5), .waddress(qp5), .wdata(beat5[511:481]), .raddress(qp), .rdata(kept)
    );

    // Stage 6: into the ring. The packet may be sent two cycles later.
    reg         ends6;
    reg  [3:0]  qp6;
    reg  [9:0]  position6;
    generate
        for (j = 0; j < 64; j = j + 1) begin : masks
            always @(posedge clk)
                ring_data[8*j +: 8] <= beyond5[j] ? 8'd0 : beat5[8*j +: 8];
        end
    endgenerate
    always @(posedge clk) begin
        ring_write   <= valid5 && some5 && !rst;
        ring_address <= {qp5, at5};
        ends6        <= valid5 && ends5 && !rst;
        qp6          <= qp5;
        position6    <= position5;
        filled       <= ends6 && !rst;
        filled_qp    <= qp6;
        filled_position <= position6 + 10'd1;
    end

    assign idle = empty && busy == 4'd0 && !valid5 && !ends6 && !filled;

endmodule

`default_nettype wire
