// Puts the ICRC into frames that pass by at one beat a cycle, at any spacing.
//
// A frame arrives with zeros where its ICRC goes and behind its end. Its length
// is 2 modulo 4 (Ethernet, IPv4 and UDP headers are 42 bytes, a packet is whole
// words), and s_tail is bits 5..2 of it: the last beat has 4·s_tail + 2 bytes.
// With s_tail 0 the ICRC lies half in the last beat and half in the one before,
// which therefore waits in the last stage for its successor, however late that
// comes. Nothing else waits: there is no ready, and a frame leaves LATENCY
// cycles after it came or later, in order.
`default_nettype none

module rl_icrc_insert (
    input  wire         clk,
    input  wire         rst,

    // Frames without ICRC
    input  wire         s_valid,
    input  wire         s_first,
    input  wire         s_last,
    input  wire [3:0]   s_tail,
    input  wire [511:0] s_data,

    // Frames with ICRC
    output reg          m_valid,
    output reg          m_first,
    output reg          m_last,
    output reg  [3:0]   m_tail,
    output reg  [511:0] m_data
);

`include "rl_icrc.vh"

    localparam CRC_STAGES = 8; // from a beat to its ICRC

    // The fields that change in flight count as ones: bytes 15 type of
    // service, 22 time to live, 24 and 25 header checksum, 40 and 41 UDP
    // checksum, 46 congestion marks. The Ethernet header counts as zeros.
    wire [511:0] covered;
    genvar b;
    generate
        for (b = 0; b < 64; b = b + 1) begin : mask
            if (b < 14)
                assign covered[8*b +: 8] = s_first ? 8'h00 : s_data[8*b +: 8];
            else if (b == 15 || b == 22 || b == 24 || b == 25 || b == 40 || b == 41 || b == 46)
                assign covered[8*b +: 8] = s_data[8*b +: 8] | {8{s_first}};
            else
                assign covered[8*b +: 8] = s_data[8*b +: 8];
        end
    endgenerate

    wire        fold_valid;
    wire [31:0] fold;

    rl_icrc_fold fold_i (
        .clk       (clk),
        .rst       (rst),
        .valid     (s_valid),
        .first     (s_first),
        .last      (s_last),
        .data      (covered),
        .crc_valid (fold_valid),
        .crc       (fold)
    );

    // The register has seen 66 - 4·tail bytes of zeros too many: the place of
    // the ICRC and what is behind it. They are undone sixteen at a time, as often as the
    // upper bits of 15 - tail say, four at a time, as the lower bits say, and the
    // last 6 together with the way back from the root.
    reg  [31:0] back16, turned, back4;
    wire [31:0] once, twice, thrice, turn, once4, twice4, thrice4, leave;
    genvar i;
    generate
        for (i = 0; i < 32; i = i + 1) begin : row
            assign once[i]    = ^(fold   & RL_ICRC_BACK1[32*i +: 32]);
            assign twice[i]   = ^(fold   & RL_ICRC_BACK2[32*i +: 32]);
            assign thrice[i]  = ^(fold   & RL_ICRC_BACK3[32*i +: 32]);
            assign turn[i]    = ^(back16 & RL_ICRC_TURN[32*i +: 32]);
            assign once4[i]   = ^(turned & RL_ICRC_BACK1[32*i +: 32]);
            assign twice4[i]  = ^(turned & RL_ICRC_BACK2[32*i +: 32]);
            assign thrice4[i] = ^(turned & RL_ICRC_BACK3[32*i +: 32]);
            assign leave[i]   = ^(back4  & RL_ICRC_LEAVE[32*i +: 32]);
        end
    endgenerate

    // The beats wait for their ICRC in a shift register, newest lowest, of which
    // the flags alone are reset.
    reg [512*CRC_STAGES-1:0] data;
    reg [4*CRC_STAGES-1:0]   tail;
    reg [CRC_STAGES-1:0]     valid, first, last;

    always @(posedge clk) begin
        data  <= {data[512*(CRC_STAGES-1)-1:0], s_data};
        tail  <= {tail[4*(CRC_STAGES-1)-1:0], s_tail};
        first <= {first[CRC_STAGES-2:0], s_first};
        last  <= {last[CRC_STAGES-2:0], s_last};
        valid <= rst ? {CRC_STAGES{1'b0}} : {valid[CRC_STAGES-2:0], s_valid};

        case (tail[4*3+2 +: 2])
            2'd3:    back16 <= fold;
            2'd2:    back16 <= once;
            2'd1:    back16 <= twice;
            default: back16 <= thrice;
        endcase
        turned <= turn;
        case (tail[4*5 +: 2])
            2'd3:    back4 <= turned;
            2'd2:    back4 <= once4;
            2'd1:    back4 <= twice4;
            default: back4 <= thrice4;
        endcase
    end

    // The ICRC is ready together with its beat at the end of the shift
    // register. place is one-hot: where its word goes.
    reg  [31:0] icrc;
    reg  [15:0] place;
    always @(posedge clk) begin
        icrc  <= ~leave;
        place <= last[CRC_STAGES-2] ? 16'd1 << tail[4*(CRC_STAGES-2) +: 4] : 16'd0;
    end

    wire         in_valid = valid[CRC_STAGES-1];
    wire         in_first = first[CRC_STAGES-1];
    wire         in_last  = last[CRC_STAGES-1];
    wire [511:0] in_data  = data[512*(CRC_STAGES-1) +: 512];
    wire [511:0] with_icrc;
    assign with_icrc[15:0] = in_data[15:0] | (icrc[31:16] & {16{place[0]}});
    generate
        for (i = 1; i < 16; i = i + 1) begin : word
            assign with_icrc[32*i-16 +: 32] = in_data[32*i-16 +: 32] | (icrc & {32{place[i]}});
        end
    endgenerate
    assign with_icrc[511:496] = in_data[511:496];

    // The last stage holds a beat until the next one of its frame is there.
    reg         held;
    reg         held_first, held_last;
    reg [3:0]   held_tail;
    reg [511:0] held_data;

    always @(posedge clk) begin
        m_valid <= held && (held_last || in_valid) && !rst;
        m_first <= held_first;
        m_last  <= held_last;
        m_tail  <= held_tail;
        m_data  <= held_data;
        if (place[0] && in_valid && !held_last)
            m_data[511:496] <= icrc[15:0];
        if (in_valid) begin
            held_first <= in_first;
            held_last  <= in_last;
            held_tail  <= tail[4*(CRC_STAGES-1) +: 4];
            held_data  <= with_icrc;
        end
        if (rst)
            held <= 1'b0;
        else if (in_valid)
            held <= 1'b1;
        else if (held_last)
            held <= 1'b0;
    end

endmodule

`default_nettype wire
