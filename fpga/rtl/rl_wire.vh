// Layouts that several modules share, and byte order.

// What a queue pair's packets have in common, as Commit writes it.
localparam RL_PEER_DST_MAC   = 0;   // 48
localparam RL_PEER_SRC_MAC   = 48;  // 48
localparam RL_PEER_SRC_IP    = 96;  // 32
localparam RL_PEER_DST_IP    = 128; // 32
localparam RL_PEER_SRC_PORT  = 160; // 16
localparam RL_PEER_QPN       = 176; // 24
localparam RL_PEER_PKEY      = 200; // 16
localparam RL_PEER_CLASS     = 216; // 8
localparam RL_PEER_HOPS      = 224; // 8
localparam RL_PEER_SUM       = 232; // 16, of the IPv4 header without the length
localparam RL_PEER_WIDTH     = 248;

// What a packet in the ring is: one entry a position.
localparam RL_META_OPCODE    = 0;   // 8
localparam RL_META_SOLICITED = 8;   // 1
localparam RL_META_ACK       = 9;   // 1
localparam RL_META_RETH      = 10;  // 1
localparam RL_META_IMM       = 11;  // 1
localparam RL_META_LENGTH    = 12;  // 13, bytes of payload
localparam RL_META_START     = 25;  // 12, first beat in the queue pair's ring
localparam RL_META_ADDRESS   = 37;  // 64
localparam RL_META_RKEY      = 101; // 32
localparam RL_META_DMA       = 133; // 32, bytes of the message
localparam RL_META_IMMDT     = 165; // 32
localparam RL_META_PSN       = 197; // 24, the first of a READ
localparam RL_META_WIDTH     = 221;

// What is done when a packet is acknowledged: sums up to and with it.
localparam RL_DONE_TAIL      = 0;   // 13, the ring is free up to here
localparam RL_DONE_MESSAGES  = 13;  // 16
localparam RL_DONE_BYTES     = 29;  // 32
localparam RL_DONE_FRAMES    = 61;  // 16
localparam RL_DONE_FRAMEBYTES = 77; // 32
localparam RL_DONE_PSN       = 109; // 24, of the packet after it
localparam RL_DONE_LENGTH    = 133; // 25, bytes of a READ
localparam RL_DONE_READ      = 158; // 1
localparam RL_DONE_CREDIT    = 159; // 1, a READ of the Credit word
localparam RL_DONE_WIDTH     = 160;

// A response that reached its queue pair.
localparam RL_EVENT_QP       = 0;   // 4
localparam RL_EVENT_KIND     = 4;   // 2
localparam RL_EVENT_CODE     = 6;   // 5
localparam RL_EVENT_PSN      = 11;  // 24
localparam RL_EVENT_MSN      = 35;  // 24
localparam RL_EVENT_EPOCH    = 59;  // 2, of the queue pair
localparam RL_EVENT_LENGTH   = 61;  // 13, bytes of payload
localparam RL_EVENT_HEAD     = 74;  // 64, the first of them
localparam RL_EVENT_TAIL     = 138; // 31, the last bits of a full packet
localparam RL_EVENT_COUNTER  = 169; // 1, what follows the head is a counter
localparam RL_EVENT_PRBS     = 170; // 1, what follows the head is PRBS31
localparam RL_EVENT_WIDTH    = 171;
// What the code is in a READ response.
localparam RL_CODE_REFUSED   = 0;   // its AETH is no ACK
localparam RL_CODE_STARTS    = 1;   // FIRST or ONLY
localparam RL_CODE_ENDS      = 2;   // LAST or ONLY
localparam [1:0] RL_KIND_ACK  = 2'd0;
localparam [1:0] RL_KIND_RNR  = 2'd1;
localparam [1:0] RL_KIND_NAK  = 2'd2;
localparam [1:0] RL_KIND_READ = 2'd3;

// The wire is big-endian and its first byte is the lowest.
function [15:0] be16(input [15:0] v);
    be16 = {v[7:0], v[15:8]};
endfunction
function [23:0] be24(input [23:0] v);
    be24 = {v[7:0], v[15:8], v[23:16]};
endfunction
function [31:0] be32(input [31:0] v);
    be32 = {v[7:0], v[15:8], v[23:16], v[31:24]};
endfunction
function [47:0] be48(input [47:0] v);
    be48 = {be24(v[23:0]), be24(v[47:24])};
endfunction
function [63:0] be64(input [63:0] v);
    be64 = {be32(v[31:0]), be32(v[63:32])};
endfunction
// One's complement sum of 16 bits.
function [15:0] fold17(input [16:0] v);
    fold17 = v[15:0] + {15'd0, v[16]};
endfunction
// One bit for each of the first n bytes of a beat, 64 at most.
function [63:0] first_bytes(input [6:0] n);
    reg [7:0] whole, part, lower;
    integer   g;
    begin
        whole = n[6] ? 8'hff : ~(8'hff << n[5:3]);
        part  = n[6] ? 8'h00 : 8'h01 << n[5:3];
        lower = ~(8'hff << n[2:0]);
        for (g = 0; g < 8; g = g + 1)
            first_bytes[8*g +: 8] = {8{whole[g]}} | {8{part[g]}} & lower;
    end
endfunction
// The same for a frame that goes on for any number of bytes.
function [63:0] bytes_before(input [16:0] reach);
    bytes_before = first_bytes({reach[16:6] != 11'd0, reach[5:0]});
endfunction
