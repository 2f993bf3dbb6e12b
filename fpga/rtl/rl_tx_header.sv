// Makes the headers of packets, one a cycle, four cycles after their request:
// Ethernet, IPv4, UDP, BTH, and RETH and immediate data where the opcode has
// them, up to 74 bytes. The metadata memory answers one cycle after its address.
`default_nettype none

module rl_tx_header (
    input  wire         clk,
    input  wire         rst,

    // Queue pairs
    input  wire         peer_write,
    input  wire [3:0]   peer_index,
    input  wire [247:0] peer_data,

    // Packets to send
    input  wire         send_valid,
    input  wire [3:0]   send_qp,
    input  wire         send_read,   // a READ from where it is: its PSN, how many bytes came and are left
    input  wire [23:0]  send_psn,
    input  wire [24:0]  send_offset,
    input  wire [24:0]  send_left,

    // Their metadata, of the address of the cycle before
    input  wire [220:0] meta,

    // Headers, byte 0 lowest
    output reg          m_valid,
    output reg  [591:0] m_header,
    output reg  [3:0]   m_qp,
    output reg  [11:0]  m_start,
    output reg  [6:0]   m_payload_beats,
    output reg  [6:0]   m_left,  // beats behind the first
    output reg  [3:0]   m_tail,
    output reg  [1:0]   m_shape // 0: 54 bytes, 1: immediate 58, 2: RETH 70, 3: both 74
);

`include "rl_wire.vh"

    wire [247:0] peer1;
    rl_store #(.WIDTH(RL_PEER_WIDTH)) peers (
        .clk(clk), .write(peer_write), .waddress(peer_index), .wdata(peer_data),
        .read(1'b1), .raddress(send_qp), .rdata(peer1)
    );

    // Stage 1 waits for the metadata.
    reg         valid1, valid2, valid3;
    reg [3:0]   qp1, qp2, qp3;
    reg         read1, read2;
    reg [23:0]  psn1, psn2, psn3;
    reg [24:0]  offset1, offset2, left1, left2;
    reg [31:0]  low3;    // address, whose carry goes up in the next stage
    reg         carry3;
    reg [31:0]  dma3;
    reg [247:0] peer2, peer3;

    // Stage 2 has it; stage 3 has the lengths.
    reg [220:0] meta2, meta3;
    reg [12:0]  udp3;

    wire        reth2   = meta2[RL_META_RETH];
    wire        imm2    = meta2[RL_META_IMM];
    wire [12:0] length2 = meta2[RL_META_LENGTH +: 13];
    wire [12:0] whole2  = {length2[12:2] + {10'd0, |length2[1:0]}, 2'b00};
    reg  [5:0]  fixed2; // UDP header, BTH, ICRC and extension headers
    always @* case ({reth2, imm2})
        2'b00:   fixed2 = 6'd24;
        2'b01:   fixed2 = 6'd28;
        2'b10:   fixed2 = 6'd40;
        default: fixed2 = 6'd44;
    endcase

    wire [12:0] ip3    = udp3 + 13'd20;
    wire [12:0] frame3 = udp3 + 13'd34;
    wire [12:0] less3  = udp3 + 13'd33; // frame without its last byte
    wire [12:0] length3 = meta3[RL_META_LENGTH +: 13];
    wire [12:0] fill3   = length3 + 13'd63;

    wire [15:0] sum3   = peer3[RL_PEER_SUM +: 16];
    wire [16:0] check3 = {1'b0, sum3} + {4'd0, ip3};
    reg  [1:0]  pad3;
    reg  [591:0] header3;
    wire [31:0]  high3 = meta3[RL_META_ADDRESS+32 +: 32] + {31'd0, carry3};
    wire [127:0] reth = {be32(dma3), be32(meta3[RL_META_RKEY +: 32]), be64({high3, low3})};
    wire [31:0]  imm  = be32(meta3[RL_META_IMMDT +: 32]);

    always @* begin
        pad3 = 2'd0 - length3[1:0];
        header3 = 592'd0;
        header3[8*0  +: 48] = be48(peer3[RL_PEER_DST_MAC +: 48]);
        header3[8*6  +: 48] = be48(peer3[RL_PEER_SRC_MAC +: 48]);
        header3[8*12 +: 16] = 16'h0008;
        header3[8*14 +: 8]  = 8'h45;
        header3[8*15 +: 8]  = peer3[RL_PEER_CLASS +: 8];
        header3[8*16 +: 16] = be16({3'd0, ip3});
        header3[8*18 +: 32] = 32'h00400000; // identification 0, do not fragment
        header3[8*22 +: 8]  = peer3[RL_PEER_HOPS +: 8];
        header3[8*23 +: 8]  = 8'd17;
        header3[8*24 +: 16] = ~be16(fold17(check3));
        header3[8*26 +: 32] = be32(peer3[RL_PEER_SRC_IP +: 32]);
        header3[8*30 +: 32] = be32(peer3[RL_PEER_DST_IP +: 32]);
        header3[8*34 +: 16] = be16(peer3[RL_PEER_SRC_PORT +: 16]);
        header3[8*36 +: 16] = be16(16'd4791);
        header3[8*38 +: 16] = be16({3'd0, udp3});
        header3[8*42 +: 8]  = meta3[RL_META_OPCODE +: 8];
        header3[8*43 +: 8]  = {meta3[RL_META_SOLICITED], 1'b1, pad3, 4'd0};
        header3[8*44 +: 16] = be16(peer3[RL_PEER_PKEY +: 16]);
        header3[8*47 +: 24] = be24(peer3[RL_PEER_QPN +: 24]);
        header3[8*50 +: 8]  = {meta3[RL_META_ACK], 7'd0};
        header3[8*51 +: 24] = be24(psn3);
        if (meta3[RL_META_RETH]) begin
            header3[8*54 +: 128] = reth;
            header3[8*70 +: 32]  = imm;
        end else
            header3[8*54 +: 32] = imm;
    end

    always @(posedge clk) begin
        valid1 <= send_valid && !rst;
        qp1    <= send_qp;
        read1   <= send_read;
        psn1    <= send_psn;
        offset1 <= send_offset;
        left1   <= send_left;
        valid2 <= valid1 && !rst;
        qp2    <= qp1;
        read2   <= read1;
        psn2    <= psn1;
        offset2 <= read1 ? offset1 : 25'd0;
        left2   <= left1;
        peer2  <= peer1;
        meta2  <= meta;
        valid3 <= valid2 && !rst;
        qp3    <= qp2;
        psn3   <= read2 ? psn2 : meta2[RL_META_PSN +: 24];
        {carry3, low3} <= {1'b0, meta2[RL_META_ADDRESS +: 32]} + {8'd0, offset2};
        dma3   <= read2 ? {7'd0, left2} : meta2[RL_META_DMA +: 32];
        peer3  <= peer2;
        meta3  <= meta2;
        udp3   <= whole2 + {7'd0, fixed2};

        m_valid         <= valid3 && !rst;
        m_header        <= header3;
        m_qp            <= qp3;
        m_start         <= meta3[RL_META_START +: 12];
        m_payload_beats <= fill3[12:6];
        m_left          <= less3[12:6];
        m_tail          <= frame3[5:2];
        m_shape         <= {meta3[RL_META_RETH], meta3[RL_META_IMM]};
    end

endmodule

`default_nettype wire
