// Receives frames and finds the responses that are for a queue pair of ours.
//
// The MAC cannot be stopped, so that this takes a beat every cycle whatever the
// frames hold: headers are judged from the first beat, the ICRC is computed over
// all of it, and the verdict comes eleven cycles after the last beat. The first
// reason found counts, in this order: IP and UDP headers, ICRC, transport
// headers, opcode, QPN, addresses. Frames with VLAN tags, of IPv6 or with IP
// options are none of ours and not counted.
`default_nettype none

module rl_rx #(
    parameter QUEUE_PAIRS = 8
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         enable,

    // MAC
    input  wire         s_axis_tvalid,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser, // with the last beat: the frame is bad

    // Queue pairs
    input  wire         peer_write,
    input  wire [3:0]   peer_index,
    input  wire [247:0] peer_data,
    input  wire [23:0]  peer_qpn,     // local
    input  wire [1:0]   peer_epoch,   // tells sessions of a queue pair apart
    input  wire [QUEUE_PAIRS-1:0] ready,

    // Responses
    output reg          event_valid,
    output reg  [170:0] event_data,

    // Counters
    output reg          got,          // a frame for UDP port 4791
    output reg  [15:0]  got_bytes,
    output reg          bad_icrc,
    output reg          malformed,
    output reg          unknown_qp,
    output reg          bad_opcode,
    output reg          wrong_address
);

`include "rl_wire.vh"
`include "rl_icrc.vh"

    genvar b;

    // Stage 0: as it came.
    reg         valid0, first0, last0, bad0, next_first;
    reg [511:0] data0;
    reg [63:0]  keep0;
    always @(posedge clk) begin
        valid0 <= s_axis_tvalid && !rst;
        first0 <= next_first;
        last0  <= s_axis_tlast;
        bad0   <= s_axis_tuser;
        data0  <= s_axis_tdata;
        keep0  <= s_axis_tkeep;
        if (rst)
            next_first <= 1'b1;
        else if (s_axis_tvalid)
            next_first <= s_axis_tlast;
    end

    // A run of n ones: bit p of n is the parity of every 2^p-th.
    reg [6:0] bytes0;
    always @* begin : count
        integer p, n;
        bytes0 = 7'd0;
        for (p = 0; p < 7; p = p + 1)
            for (n = (1 << p) - 1; n < 64; n = n + (1 << p))
                bytes0[p] = bytes0[p] ^ keep0[n];
    end

    // Stage 1: the length so far, and how far the IP packet reaches from the
    // beginning of this beat.
    reg         valid1, first1, last1, bad1;
    reg [511:0] data1;
    reg [15:0]  length1;  // of the frame up to and with this beat, at most 0xffff
    reg [16:0]  reach1;
    reg         some1;    // it is more than 0
    reg         on;       // the frame began while enabled
    wire [15:0] whole     = be16(data0[8*16 +: 16]);
    wire [16:0] longer    = {1'b0, first0 ? 16'd0 : length1} + {10'd0, bytes0};
    always @(posedge clk) begin
        valid1 <= valid0 && !rst;
        first1 <= first0;
        last1  <= last0;
        bad1   <= bad0;
        data1  <= data0;
        if (valid0) begin
            length1 <= longer[16] ? 16'hffff : longer[15:0];
            if (first0) begin
                reach1 <= {1'b0, whole} + 17'd14;
                some1  <= 1'b1;
                on     <= enable;
            end else begin
                reach1 <= (reach1 > 17'd64) ? reach1 - 17'd64 : 17'd0;
                some1  <= reach1 > 17'd64;
            end
        end
    end

    reg  [7:0]  opcode2, flags2; // see below

    // Stage 2: which bytes the ICRC does not cover.
    reg         valid2, first2, end2;
    reg [511:0] data2;
    reg [63:0]  beyond2;
    reg [5:0]   rest2;
    reg [16:0]  reach2;
    always @(posedge clk) begin
        beyond2 <= ~bytes_before(reach1);
        valid2 <= valid1 && some1 && !rst;
        first2 <= first1;
        end2   <= reach1 <= 17'd64;
        rest2  <= reach1[5:0];
        reach2 <= reach1;
        data2  <= data1;
    end

    // Stage 3: these are zeros, those that change in flight are ones.
    reg         valid3, first3, end3, aeth3;
    reg [511:0] data3;
    reg [16:0]  ends3;    // how far the payload reaches
    reg [5:0]   rest3, rest4, rest5, rest6;
    generate
        for (b = 0; b < 64; b = b + 1) begin : mask
            always @(posedge clk)
                if (b < 14)
                    data3[8*b +: 8] <= (first2 || beyond2[b]) ? 8'h00 : data2[8*b +: 8];
                else if (b == 15 || b == 22 || b == 24 || b == 25 || b == 40 || b == 41 || b == 46)
                    data3[8*b +: 8] <= beyond2[b] ? 8'h00 : data2[8*b +: 8] | {8{first2}};
                else
                    data3[8*b +: 8] <= beyond2[b] ? 8'h00 : data2[8*b +: 8];
        end
    endgenerate
    always @(posedge clk) begin
        valid3 <= valid2 && !rst;
        first3 <= first2;
        end3   <= end2;
        aeth3  <= opcode2 != 8'h0e;
        ends3  <= (reach2 > {15'd1, flags2[5:4]}) ? reach2 - {15'd1, flags2[5:4]} : 17'd0;
        rest3  <= rest2;
        rest4  <= rest3;
        rest5  <= rest4;
        rest6  <= rest5;
    end

    // Stages 4 to 7: the register of the CRC. Zeros behind the end of the
    // packet lead from the residue to one of 64 values. Stage 8: the verdict,
    // which stands until the next packet's.
    wire        crc_valid;
    wire [31:0] crc;
    reg  [31:0] residue7;
    reg         right8;
    rl_icrc_fold fold (
        .clk(clk), .rst(rst), .valid(valid3), .first(first3), .last(end3), .data(data3),
        .crc_valid(crc_valid), .crc(crc)
    );
    always @(posedge clk) begin
        residue7 <= RL_ICRC_RIGHT[32*rest6 +: 32];
        if (crc_valid)
            right8 <= crc == residue7;
    end

    // What a READ response's payload looks like, in time for stage 8.
    wire [63:0] head8;
    wire [30:0] tail8;
    wire        counter8, prbs8;
    rl_check check (
        .clk(clk), .valid(valid3), .first(first3), .aeth(aeth3), .ends(ends3), .data(data3),
        .head(head8), .tail(tail8), .counter(counter8), .prbs(prbs8)
    );

    // The headers, from the first beat; they stand until the next frame's.
    reg [47:0] dst_mac;
    reg [15:0] ether_type, total, fragment, dst_port, udp_length;
    reg [7:0]  version, protocol;
    reg [31:0] src_ip, dst_ip;
    reg [7:0]  opcode, flags, syndrome;
    reg [23:0] qpn, psn, message;

    function [15:0] add16(input [15:0] x, input [15:0] y);
        add16 = fold17({1'b0, x} + {1'b0, y});
    endfunction

    // The checksum's ten words, in wire order: the sum is right either way.
    reg [15:0] w0, w1, w2, w3, w4, w5, w6, w7, w8, w9;
    always @(posedge clk)
        if (valid0 && first0) begin
            dst_mac    <= be48(data0[8*0 +: 48]);
            ether_type <= be16(data0[8*12 +: 16]);
            version    <= data0[8*14 +: 8];
            total      <= be16(data0[8*16 +: 16]);
            fragment   <= be16(data0[8*20 +: 16]);
            protocol   <= data0[8*23 +: 8];
            src_ip     <= be32(data0[8*26 +: 32]);
            dst_ip     <= be32(data0[8*30 +: 32]);
            dst_port   <= be16(data0[8*36 +: 16]);
            udp_length <= be16(data0[8*38 +: 16]);
            opcode     <= data0[8*42 +: 8];
            flags      <= data0[8*43 +: 8];
            qpn        <= be24(data0[8*47 +: 24]);
            psn        <= be24(data0[8*51 +: 24]);
            syndrome   <= data0[8*54 +: 8];
            message    <= be24(data0[8*55 +: 24]);
            w0 <= data0[8*14 +: 16];
            w1 <= data0[8*16 +: 16];
            w2 <= data0[8*18 +: 16];
            w3 <= data0[8*20 +: 16];
            w4 <= data0[8*22 +: 16];
            w5 <= data0[8*24 +: 16];
            w6 <= data0[8*26 +: 16];
            w7 <= data0[8*28 +: 16];
            w8 <= data0[8*30 +: 16];
            w9 <= data0[8*32 +: 16];
        end

    // Stage 2 of the last beat: lengths and single fields. From here on each
    // stage has one frame.
    reg        ended2;
    reg [15:0] length2, total2, udp2;
    reg        ours2, early2, short2, version2, options2, total_low2, not_udp2, fragment2, udp_low2, port2, udp_bad2;
    reg [15:0] s2a, s2b, s2c, s2d, s2e;
    reg [7:0]  syndrome2;
    reg [23:0] qpn2, psn2, message2;
    reg [31:0] src2, dst2;
    reg [47:0] mac2;
    always @(posedge clk) begin
        ended2     <= valid1 && last1 && on && !bad1 && !rst;
        length2    <= length1;
        total2     <= total;
        udp2       <= udp_length;
        ours2      <= ether_type == 16'h0800 && length1 >= 16'd14;
        early2     <= length1 < 16'd34;
        version2   <= version[7:4] != 4'd4 || version[3:0] < 4'd5;
        options2   <= version[7:4] == 4'd4 && version[3:0] > 4'd5;
        total_low2 <= total < 16'd20;
        short2     <= {1'b0, length1} < {1'b0, total} + 17'd14;
        not_udp2   <= protocol != 8'd17;
        fragment2  <= fragment[15] || fragment[13:0] != 14'd0;
        udp_low2   <= total < 16'd28;
        port2      <= dst_port != 16'd4791;
        udp_bad2   <= udp_length != total - 16'd20;
        s2a        <= add16(w0, w1);
        s2b        <= add16(w2, w3);
        s2c        <= add16(w4, w5);
        s2d        <= add16(w6, w7);
        s2e        <= add16(w8, w9);
        opcode2    <= opcode;
        flags2     <= flags;
        syndrome2  <= syndrome;
        qpn2       <= qpn;
        psn2       <= psn;
        message2   <= message;
        src2       <= src_ip;
        dst2       <= dst_ip;
        mac2       <= dst_mac;
    end

    // Stage 3: what the opcode asks for, and whose QPN it is.
    reg        ended3, drop3, bad3, late_drop3, late_bad3, icrc_short3;
    reg [15:0] s3a, s3b, length_3, bytes3, payload3;
    reg        early3, sum_matters3;
    reg        known3, response3, no_payload3, first_or_middle3, some3;
    reg [4:0]  header3;
    reg        version3, reads3, tired3, starts3, closes3, refused3;
    reg [1:0]  pad3;
    reg [7:0]  syndrome3;
    reg [23:0] psn3, message3;
    reg [31:0] src3, dst3;
    reg [47:0] mac3;
    reg [23:0] qpns [0:QUEUE_PAIRS-1];
    reg [1:0]  epochs [0:QUEUE_PAIRS-1];
    reg [QUEUE_PAIRS-1:0] match3;
    integer    k;
    always @(posedge clk) begin
        ended3      <= ended2 && ours2 && !rst;
        // Before the checksum, and after it, in the order of the header.
        bad3        <= early2 || version2 || !options2 && (total_low2 || short2);
        drop3       <= !early2 && options2;
        late_drop3  <= not_udp2 || !fragment2 && !udp_low2 && port2;
        late_bad3   <= fragment2 || udp_low2 || udp_bad2;
        s3a         <= add16(s2a, s2b);
        s3b         <= add16(add16(s2c, s2d), s2e);
        length_3    <= length2;
        bytes3      <= total2 + 16'd14;
        payload3    <= udp2 - 16'd24; // behind the BTH, without ICRC
        icrc_short3 <= udp2 < 16'd24;
        version3    <= flags2[3:0] != 4'd0;
        pad3        <= flags2[5:4];
        syndrome3   <= syndrome2;
        psn3        <= psn2;
        message3    <= message2;
        src3        <= src2;
        dst3        <= dst2;
        mac3        <= mac2;

        known3      <= opcode2 <= 8'h11;
        response3   <= opcode2 >= 8'h0d && opcode2 <= 8'h11;
        reads3      <= opcode2 != 8'h11;
        no_payload3 <= opcode2 == 8'h0c || opcode2 == 8'h11;
        case (opcode2)
            8'h06, 8'h0a, 8'h0c:               header3 <= 5'd16;
            8'h0b:                             header3 <= 5'd20;
            8'h03, 8'h05, 8'h09:               header3 <= 5'd4;
            8'h0d, 8'h0f, 8'h10, 8'h11:        header3 <= 5'd4;
            default:                           header3 <= 5'd0;
        endcase
        first_or_middle3 <= opcode2 == 8'h00 || opcode2 == 8'h01 || opcode2 == 8'h06 || opcode2 == 8'h07 ||
                            opcode2 == 8'h0d || opcode2 == 8'h0e;
        some3       <= opcode2 == 8'h00 || opcode2 == 8'h01 || opcode2 == 8'h02 || opcode2 == 8'h03 ||
                       opcode2 == 8'h06 || opcode2 == 8'h07 || opcode2 == 8'h08 || opcode2 == 8'h09 ||
                       opcode2 == 8'h0d || opcode2 == 8'h0e || opcode2 == 8'h0f;
        starts3     <= opcode2 == 8'h0d || opcode2 == 8'h10;
        closes3     <= opcode2 == 8'h0f || opcode2 == 8'h10;
        refused3    <= opcode2 != 8'h0e && syndrome2[7:5] != 3'd0;
        // READ responses MIDDLE have no AETH.
        tired3      <= opcode2 != 8'h0e && !(syndrome2[7:5] == 3'd0 || syndrome2[7:5] == 3'd1 ||
                                             syndrome2[7:5] == 3'd3 && syndrome2[4:0] <= 5'd3);
        for (k = 0; k < QUEUE_PAIRS; k = k + 1) begin
            match3[k] <= ready[k] && qpns[k] == qpn2;
            if (peer_write && peer_index == k[3:0]) begin
                qpns[k]   <= peer_qpn;
                epochs[k] <= peer_epoch;
            end
        end
    end

    // Stage 4: checksum, payload.
    reg        ended4, bad4, drop4, icrc_short4, version4, known4, response4, short4;
    reg        tired4, reads4, starts4, closes4, refused4, no_payload4, fm4, some4;
    reg [15:0] bytes4, padded4;
    reg [1:0]  pad4;
    reg        found4;
    reg [3:0]  qp4;
    reg [1:0]  epoch4;
    reg [7:0]  syndrome4;
    reg [23:0] psn4, message4;
    reg [31:0] src4, dst4;
    reg [47:0] mac4;
    wire       sum_bad3 = add16(s3a, s3b) != 16'hffff;
    integer    j;
    reg  [3:0] qp3; // at most one matches
    reg  [1:0] epoch3;
    always @* begin
        qp3    = 4'd0;
        epoch3 = 2'd0;
        for (j = 0; j < QUEUE_PAIRS; j = j + 1)
            if (match3[j]) begin
                qp3    = qp3 | j[3:0];
                epoch3 = epoch3 | epochs[j];
            end
    end
    always @(posedge clk) begin
        ended4      <= ended3 && !drop3 && !(!bad3 && !sum_bad3 && late_drop3) && !rst;
        bad4        <= bad3 || sum_bad3 || late_bad3;
        bytes4      <= (bad3 || sum_bad3 || late_bad3) ? length_3 : bytes3;
        icrc_short4 <= icrc_short3;
        version4    <= version3;
        known4      <= known3;
        response4   <= response3;
        reads4      <= reads3;
        starts4     <= starts3;
        closes4     <= closes3;
        refused4    <= refused3;
        no_payload4 <= no_payload3;
        fm4         <= first_or_middle3;
        some4       <= some3;
        tired4      <= tired3;
        short4      <= payload3 < {11'd0, header3};
        padded4     <= payload3 - {11'd0, header3};
        pad4        <= pad3;
        syndrome4   <= syndrome3;
        psn4        <= psn3;
        message4    <= message3;
        src4        <= src3;
        dst4        <= dst3;
        mac4        <= mac3;
        found4      <= match3 != 0;
        qp4         <= qp3;
        epoch4      <= epoch3;
    end

    // Stage 5: the transport headers' verdict, and whose addresses should be there.
    wire [247:0] peer;
    rl_store #(.WIDTH(RL_PEER_WIDTH)) peers (
        .clk(clk), .write(peer_write), .waddress(peer_index), .wdata(peer_data),
        .read(1'b1), .raddress(qp3), .rdata(peer)
    );
    wire [111:0] addresses4 = {mac4, src4, dst4};
    wire [111:0] expected4  = {peer[RL_PEER_SRC_MAC +: 48], peer[RL_PEER_DST_IP +: 32], peer[RL_PEER_SRC_IP +: 32]};
    wire [15:0] body4 = padded4 - {14'd0, pad4};
    reg         ended5, bad5, icrc_short5, contradicts5, opcode5, found5, tired5, reads5;
    reg [4:0]   code5;
    reg [12:0]  body5;
    reg [15:0]  bytes5;
    reg [3:0]   qp5;
    reg [1:0]   epoch5;
    reg [1:0]   answer5;
    integer     h;
    reg [23:0]  psn5, message5;
    reg [6:0]   same5;    // addresses, 16 bits each
    always @(posedge clk) begin
        ended5       <= ended4 && !rst;
        bad5         <= bad4;
        bytes5       <= bytes4;
        icrc_short5  <= icrc_short4;
        contradicts5 <= version4 || known4 && (short4 || padded4[1:0] != 2'd0 || padded4 < {14'd0, pad4} ||
                        body4 > 16'd4096 || no_payload4 && body4 != 16'd0 || fm4 && body4[1:0] != 2'd0 ||
                        some4 && body4 == 16'd0);
        opcode5      <= !response4;
        tired5       <= tired4;
        reads5       <= reads4;
        code5        <= reads4 ? {2'd0, closes4, starts4, refused4} : syndrome4[4:0];
        body5        <= body4[12:0];
        found5       <= found4;
        qp5          <= qp4;
        epoch5       <= epoch4;
        answer5      <= syndrome4[6:5];
        psn5         <= psn4;
        message5     <= message4;
        for (h = 0; h < 7; h = h + 1)
            same5[h] <= addresses4[16*h +: 16] == expected4[16*h +: 16];
    end

    // Stages 6 to 8 wait for the ICRC.
    localparam LATE = 98;
    wire [LATE-1:0] late5 = {bad5, bytes5, icrc_short5, contradicts5, opcode5, tired5, reads5, found5,
                             same5 == 7'h7f, epoch5, qp5, body5, answer5, code5, psn5, message5};
    reg  [LATE-1:0] late6, late7, late8;
    reg         ended6, ended7, ended8;
    always @(posedge clk) begin
        ended6 <= ended5 && !rst;
        ended7 <= ended6 && !rst;
        ended8 <= ended7 && !rst;
        late6  <= late5;
        late7  <= late6;
        late8  <= late7;
    end
    wire        bad8, icrc_short8, contradicts8, opcode8, tired8, reads8, found8, address8;
    wire [15:0] bytes8;
    wire [3:0]  qp8;
    wire [1:0]  epoch8;
    wire [12:0] body8;
    wire [1:0]  answer8;
    wire [4:0]  code8;
    wire [23:0] psn8, message8;
    assign {bad8, bytes8, icrc_short8, contradicts8, opcode8, tired8, reads8, found8, address8,
            epoch8, qp8, body8, answer8, code8, psn8, message8} = late8;

    // Stage 9: one verdict.
    wire icrc_bad8 = icrc_short8 || !right8;
    wire fault8    = contradicts8 || !opcode8 && tired8;
    always @(posedge clk) begin
        got           <= ended8 && !rst;
        got_bytes     <= bytes8;
        malformed     <= ended8 && (bad8 || !icrc_bad8 && fault8);
        bad_icrc      <= ended8 && !bad8 && icrc_bad8;
        bad_opcode    <= ended8 && !bad8 && !icrc_bad8 && !fault8 && opcode8;
        unknown_qp    <= ended8 && !bad8 && !icrc_bad8 && !fault8 && !opcode8 && !found8;
        wrong_address <= ended8 && !bad8 && !icrc_bad8 && !fault8 && !opcode8 && found8 && !address8;
        event_valid   <= ended8 && !bad8 && !icrc_bad8 && !fault8 && !opcode8 && found8 && address8 && !rst;
        event_data    <= {prbs8, counter8, tail8, head8, body8, epoch8, message8, psn8, code8,
                          reads8 ? RL_KIND_READ : answer8[1] ? RL_KIND_NAK : answer8[0] ? RL_KIND_RNR : RL_KIND_ACK,
                          qp8};
        if (rst) begin
            malformed     <= 1'b0;
            bad_icrc      <= 1'b0;
            bad_opcode    <= 1'b0;
            unknown_qp    <= 1'b0;
            wrong_address <= 1'b0;
        end
    end

endmodule

`default_nettype wire
