// Answers ARP requests for the local IPv4 address and ICMP echo requests to it,
// and drops all else. One frame is under way at a time.
//
// ARP: Ethernet and IPv4, to everybody or to the local MAC. The answer goes to
// the asker's hardware address alone. A probe (RFC 5227, from 0.0.0.0) and a
// claim of the local address by another are answered too.
//
// Echo: to the local MAC and address, IPv4 without options, no fragment, both
// checksums right. The answer is the request with addresses swapped, TTL 64 and
// both checksums updated as in RFC 1624, without what lay behind the IP length.
//
// The frame is taken whole, since the ICMP checksum is over all of it, and is
// read from the memory once for each checksum and once to be sent: three cycles a
// beat, and some 30. A frame longer than the memory is dropped. Without a unicast
// local MAC and an IPv4 address, written ::ffff:a.b.c.d, nothing is answered.
//
// To be reset together with what feeds it.
`default_nettype none

module rl_slow_reply #(
    parameter BITS = 9 // the memory has 2^BITS beats, at most 10
) (
    input  wire         clk,
    input  wire         rst,

    input  wire [47:0]  local_mac,
    input  wire [127:0] local_ip,

    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,

    // Without a gap inside a frame
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output reg  [511:0] m_axis_tdata,
    output reg  [63:0]  m_axis_tkeep,
    output reg          m_axis_tlast,

    output reg  [63:0]  answered_arp,
    output reg  [63:0]  answered_echo,
    output reg  [63:0]  dropped
);

`include "rl_wire.vh"

    localparam [3:0] TAKE = 4'd0, FETCH = 4'd1, LOOK = 4'd2, JUDGE = 4'd3, DECIDE = 4'd4, SUM = 4'd5, DRAIN = 4'd6,
                     SEND = 4'd7, SENT = 4'd8;
    localparam [3:0] SUM_CYCLES = 4'd8; // from the last read to the verdict

    genvar b;

    // The addresses as the wire has them, and whether there are any.
    reg         able;
    reg  [47:0] mac;
    reg  [31:0] ip;
    always @(posedge clk) begin
        mac  <= be48(local_mac);
        ip   <= be32(local_ip[31:0]);
        able <= local_ip[127:32] == 96'hffff && local_ip[31:0] != 32'd0 && local_mac != 48'd0 && !local_mac[40];
    end

    // The memory
    reg  [3:0]      state;
    reg  [511:0]    memory [0:(1<<BITS)-1];
    reg  [511:0]    word;
    reg  [BITS:0]   count;   // beats that were taken
    reg  [BITS-1:0] at, last, ends; // beat to read, the frame's last one, the answer's last one
    wire            full    = count[BITS];
    wire            take    = s_axis_tvalid && s_axis_tready;
    wire            advance = state != SEND && state != SENT || !valid || m_axis_tready;
    assign          s_axis_tready = state == TAKE && !rst;
    always @(posedge clk) begin
        if (take && !full)
            memory[count[BITS-1:0]] <= s_axis_tdata;
        if (advance)
            word <= memory[at];
    end

    // What the first beat says, which stays in word from LOOK to DECIDE.
    reg         long, enough;
    reg  [63:0] tail;        // bytes of the frame's last beat
    reg  [63:0] upto;        // bytes of the answer's last beat, without pad
    reg  [16:0] place;       // of the answer's last byte
    reg  [47:0] peer_mac;
    reg  [31:0] peer_ip;
    reg         to_all, to_me, type_arp, request, asks_me, type_echo, whole, from_one, to_my_ip, from_mac, from_ip;
    reg         arp, echo;
    wire [15:0] type_word = word[12*8 +: 16];
    always @(posedge clk) if (state == LOOK) begin
        to_all    <= &word[47:0];
        to_me     <= word[47:0] == mac;
        type_arp  <= type_word == 16'h0608;
        // Ethernet, IPv4, lengths 6 and 4, request
        request   <= word[14*8 +: 64] == 64'h0100_0406_0008_0100;
        asks_me   <= word[38*8 +: 32] == ip;
        type_echo <= type_word == 16'h0008 && word[14*8 +: 8] == 8'h45 && word[23*8 +: 8] == 8'd1 && word[34*8 +: 16] == 16'h0008;
        whole     <= word[20*8 +: 6] == 6'd0 && word[20*8+7] == 1'b0 && word[21*8 +: 8] == 8'd0;
        to_my_ip  <= word[30*8 +: 32] == ip;
        peer_mac  <= (type_word == 16'h0608) ? word[22*8 +: 48] : word[6*8 +: 48];
        peer_ip   <= (type_word == 16'h0608) ? word[28*8 +: 32] : word[26*8 +: 32];
        place     <= (type_word == 16'h0608) ? 17'd41 : {1'b0, be16(word[16*8 +: 16])} + 17'd13;
    end
    generate
        for (b = 0; b < 64; b = b + 1) begin : lane
            always @(posedge clk) if (state == JUDGE)
                upto[b] <= {1'b0, b[5:0]} < {1'b0, place[5:0]} + 7'd1;
        end
    endgenerate
    wire [10:0] last_beat = {{(11-BITS){1'b0}}, last};
    always @(posedge clk) if (state == JUDGE) begin
        from_mac <= !peer_mac[0] && peer_mac != 48'd0 && peer_mac != mac;
        from_ip  <= peer_ip != 32'd0 && peer_ip != ip && peer_ip[7:5] != 3'b111; // neither multicast nor broadcast
        arp      <= able && type_arp && (to_all || to_me) && request && asks_me;
        echo     <= able && type_echo && to_me && whole && to_my_ip && place >= 17'd41;
        ends     <= place[6 +: BITS];
        enough   <= !long && (place[16:6] < last_beat || place[16:6] == last_beat && tail[place[5:0]]);
    end

    // Sums of 32 words a beat: first the IP header, then what ICMP's checksum is
    // over. Each level of the tree takes a cycle.
    reg         header;      // which of the two
    reg         reads;       // word and mask are a beat of it in the next cycle
    reg  [63:0] mask;
    reg  [16:0] sums1 [0:15];
    reg  [17:0] sums2 [0:7];
    reg  [18:0] sums3 [0:3];
    reg  [19:0] sums4 [0:1];
    reg  [20:0] sums5;
    reg  [4:0]  adds;
    reg  [29:0] total;
    reg  [16:0] folded;
    reg         right;
    generate
        for (b = 0; b < 64; b = b + 1) begin : masks
            always @(posedge clk)
                mask[b] <= header ? b >= 14 && b < 34 : (at != 0 || b >= 34) && (at != ends || upto[b]);
        end
        for (b = 0; b < 16; b = b + 1) begin : level1
            always @(posedge clk)
                sums1[b] <= {1'b0, word[32*b +: 8] & {8{mask[4*b]}}, word[32*b+8 +: 8] & {8{mask[4*b+1]}}} +
                            {1'b0, word[32*b+16 +: 8] & {8{mask[4*b+2]}}, word[32*b+24 +: 8] & {8{mask[4*b+3]}}};
        end
        for (b = 0; b < 8; b = b + 1) begin : level2
            always @(posedge clk) sums2[b] <= {1'b0, sums1[2*b]} + {1'b0, sums1[2*b+1]};
        end
        for (b = 0; b < 4; b = b + 1) begin : level3
            always @(posedge clk) sums3[b] <= {1'b0, sums2[2*b]} + {1'b0, sums2[2*b+1]};
        end
        for (b = 0; b < 2; b = b + 1) begin : level4
            always @(posedge clk) sums4[b] <= {1'b0, sums3[2*b]} + {1'b0, sums3[2*b+1]};
        end
    endgenerate
    always @(posedge clk) begin
        reads  <= state == SUM;
        adds   <= {adds[3:0], reads};
        sums5  <= {1'b0, sums4[0]} + {1'b0, sums4[1]};
        if (state == SUM && !reads) // the first of them
            total <= 30'd0;
        else if (adds[4])
            total <= total + {9'd0, sums5};
        folded <= {1'b0, total[15:0]} + {3'd0, total[29:16]};
        right  <= fold17(folded) == 16'hffff;
    end

    // The answer
    reg         fetched, first, ending; // what word is
    reg         valid;
    reg  [15:0] ip_sum, icmp_sum;
    wire [15:0] ip_was   = be16(word[24*8 +: 16]);
    wire [15:0] icmp_was = be16(word[36*8 +: 16]);
    // RFC 1624, equation 3: ~(~sum + ~old + new), for TTL 64 and type 0. A message
    // that is all zeros but for its sum needs 0xffff there, so the type's part is
    // not subtracted from the complement.
    wire [15:0] ip_less = fold17({1'b0, ~ip_was} + {1'b0, ~word[22*8 +: 8], 8'hfe});
    always @(posedge clk) begin
        if (state == JUDGE) begin
            ip_sum   <= ip_less;
            icmp_sum <= fold17({1'b0, icmp_was} + 17'h00800);
        end
        if (state == DECIDE)
            ip_sum <= ~fold17({1'b0, ip_sum} + 17'h04001);
    end
    reg  [511:0] answer;
    always @* begin
        answer = word;
        answer[0 +: 48]    = peer_mac;
        answer[6*8 +: 48]  = mac;
        if (arp) begin
            answer[21*8 +: 8]  = 8'd2;
            answer[22*8 +: 48] = mac;
            answer[28*8 +: 32] = ip;
            answer[32*8 +: 48] = peer_mac;
            answer[38*8 +: 32] = peer_ip;
        end else begin
            answer[22*8 +: 8]  = 8'd64;
            answer[24*8 +: 16] = be16(ip_sum);
            answer[26*8 +: 32] = ip;
            answer[30*8 +: 32] = peer_ip;
            answer[34*8 +: 8]  = 8'd0;
            answer[36*8 +: 16] = be16(icmp_sum);
        end
    end
    wire [63:0] pad = {4'd0, {60{ends == 0}}}; // of Ethernet
    generate
        for (b = 0; b < 64; b = b + 1) begin : out
            always @(posedge clk) if (advance) begin
                m_axis_tdata[8*b +: 8] <= (ending && !upto[b]) ? 8'd0 : first ? answer[8*b +: 8] : word[8*b +: 8];
                m_axis_tkeep[b]        <= !ending || upto[b] || pad[b];
            end
        end
    endgenerate
    assign m_axis_tvalid = valid && !rst;
    wire   left = valid && m_axis_tready && m_axis_tlast;

    reg  [3:0] wait_left;
    wire       drop = state == DECIDE && !(enough && from_mac && (arp || echo && from_ip)) ||
                      state == DRAIN && wait_left == 4'd0 && !right;
    always @(posedge clk) begin
        case (state)
            TAKE: if (take) begin
                if (full)
                    long <= 1'b1;
                else
                    count <= count + 1'b1;
                if (s_axis_tlast) begin
                    last  <= count[BITS-1:0];
                    tail  <= s_axis_tkeep;
                    state <= FETCH;
                end
            end
            FETCH:  state <= LOOK;
            LOOK:   state <= JUDGE;
            JUDGE:  state <= DECIDE;
            DECIDE: begin
                header <= 1'b1;
                state  <= arp ? SEND : SUM;
            end
            SUM: begin
                wait_left <= SUM_CYCLES;
                at        <= at + 1'b1;
                if (header || at == ends) begin
                    at    <= 0;
                    state <= DRAIN;
                end
            end
            DRAIN: begin
                wait_left <= wait_left - 4'd1;
                if (wait_left == 4'd0) begin
                    header <= 1'b0;
                    state  <= header ? SUM : SEND;
                end
            end
            SEND: if (advance) begin
                at <= at + 1'b1;
                if (at == ends)
                    state <= SENT;
            end
            default: if (left) begin
                state         <= TAKE;
                answered_arp  <= answered_arp + {63'd0, arp};
                answered_echo <= answered_echo + {63'd0, !arp};
            end
        endcase
        if (drop) begin
            state   <= TAKE;
            dropped <= dropped + 64'd1;
        end
        if (state == SENT && left || drop) begin
            at    <= 0;
            count <= 0;
            long  <= 1'b0;
        end
        if (advance) begin
            fetched <= state == SEND;
            first   <= at == 0;
            ending  <= at == ends;
            valid   <= fetched;
            m_axis_tlast <= ending;
        end
        if (rst) begin
            state         <= TAKE;
            at            <= 0;
            count         <= 0;
            long          <= 1'b0;
            fetched       <= 1'b0;
            valid         <= 1'b0;
            answered_arp  <= 64'd0;
            answered_echo <= 64'd0;
            dropped       <= 64'd0;
        end
    end

endmodule

`default_nettype wire
