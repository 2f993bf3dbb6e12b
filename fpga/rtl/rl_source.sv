// Takes the frames of an external source, which end with tlast, into a memory:
// a frame is a message, whose length must be known before its first packet
// leaves. What does not fit waits; with lossy, whole frames are dropped instead, as
// behind a converter that cannot wait. A frame longer than the stream's
// FrameBytes is dropped too. Beats are full but for the last of a frame.
//
// Nothing is taken before a stream is committed to the source. Commit begins
// anew: what is held is thrown away, and so is the rest of a frame that has begun.
`default_nettype none

module rl_source #(
    parameter ADDRESS_BITS = 12 // of 64 bytes
) (
    input  wire         clk,
    input  wire         rst,

    input  wire         begins,   // Commit
    input  wire         closes,   // Reset
    input  wire [24:0]  limit,    // bytes of a frame at most
    input  wire         lossy,

    // The source
    input  wire         s_axis_tvalid,
    output reg          s_axis_tready,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,

    // The oldest frame
    output wire         valid,
    output wire [24:0]  length,
    input  wire         pop,

    // Its beats, one after the other: data comes four cycles after read
    input  wire         read,
    output reg  [511:0] data,

    output reg          dropped
);

    localparam BEATS = 1 << ADDRESS_BITS;

    reg on;
    // Stage 1: as it came.
    reg         valid1, last1;
    reg [511:0] data1;
    reg [63:0]  keep1;
    reg [6:0]   bytes1;
    always @* begin : count
        integer n;
        reg [7:0] group;
        bytes1 = 7'd0;
        for (n = 0; n < 8; n = n + 1) begin
            group = keep1[8*n +: 8];
            if (group[0])
                bytes1 = 8 * n[6:0] + {3'd0, {3'd0, group[0]} + {3'd0, group[1]} + {3'd0, group[2]} + {3'd0, group[3]}
                         + {3'd0, group[4]} + {3'd0, group[5]} + {3'd0, group[6]} + {3'd0, group[7]}};
        end
    end

    // Stage 2: its length.
    reg         valid2, last2;
    reg [511:0] data2;
    reg [6:0]   bytes2;

    // Stage 3: into the memory, until the frame is found not to fit.
    reg         halfway; // inside a frame, as taken at the port
    reg         skip;   // the rest of a frame that began before
    reg         bad;
    reg [24:0]  total;
    reg [ADDRESS_BITS:0] start, tail, head, used;
    wire [25:0] longer  = {1'b0, total} + {19'd0, bytes2};
    wire        refused = bad || longer > {1'b0, limit} || lossy && (used >= BEATS[ADDRESS_BITS:0] - 2 || lengths_full);
    wire        fits    = valid2 && !skip && !refused;
    wire        put     = fits && bytes2 != 7'd0;
    wire        whole   = fits && last2;
    wire        lengths_full, lengths_empty;
    reg  [5:0]  frames; // that are promised a place among the lengths
    (* ram_style = "ultra" *)
    reg  [511:0] memory [0:BEATS-1];

    rl_fifo #(.WIDTH(25), .DEPTH_BITS(5)) lengths (
        .clk(clk), .rst(rst || begins || closes), .push(whole), .in(longer[24:0]), .full(lengths_full),
        .pop(pop), .out(length), .empty(lengths_empty)
    );
    assign valid = !lengths_empty && on;

    wire taken = s_axis_tvalid && s_axis_tready;
    always @(posedge clk) begin
        valid1 <= taken;
        last1  <= s_axis_tlast;
        data1  <= s_axis_tdata;
        keep1  <= s_axis_tkeep;
        valid2 <= valid1;
        last2  <= last1;
        data2  <= data1;
        bytes2 <= bytes1;
        used   <= tail - head;
        frames <= frames + {5'd0, taken && s_axis_tlast} - {5'd0, valid2 && last2 && !whole} - {5'd0, pop && !lengths_empty};
        // A few beats may be on their way.
        s_axis_tready <= on && !begins && !closes && !rst &&
                         (lossy || bad || used < BEATS[ADDRESS_BITS:0] - 6 && frames < 6'd29);
        dropped <= 1'b0;
        if (taken)
            halfway <= !s_axis_tlast;
        if (put) begin
            memory[tail[ADDRESS_BITS-1:0]] <= data2;
            tail <= tail + 1'b1;
        end
        if (valid2) begin
            total <= last2 ? 25'd0 : longer[24:0];
            bad   <= !last2 && !skip && refused;
            if (last2) begin
                skip <= 1'b0;
                if (whole)
                    start <= tail + {{ADDRESS_BITS{1'b0}}, put};
                else if (!skip) begin
                    tail    <= start;
                    dropped <= 1'b1;
                end
            end
        end
        if (read)
            head <= head + 1'b1;
        if (begins || closes) begin
            on      <= begins;
            valid1  <= 1'b0;
            valid2  <= 1'b0;
            skip    <= taken ? !s_axis_tlast : halfway;
            bad     <= 1'b0;
            total   <= 25'd0;
            start   <= 0;
            tail    <= 0;
            head    <= 0;
            used    <= 0;
            frames  <= 6'd0;
            dropped <= 1'b0;
        end
        if (rst) begin
            on      <= 1'b0;
            valid1  <= 1'b0;
            valid2  <= 1'b0;
            halfway  <= 1'b0;
            skip    <= 1'b0;
            bad     <= 1'b0;
            total   <= 25'd0;
            start   <= 0;
            tail    <= 0;
            head    <= 0;
            used    <= 0;
            frames  <= 6'd0;
        end
    end

    // Reads: the address, the memory, and two registers of its cascade.
    reg  [ADDRESS_BITS-1:0] address;
    reg  [511:0] word, next;
    always @(posedge clk) begin
        address <= head[ADDRESS_BITS-1:0];
        word    <= memory[address];
        next    <= word;
        data    <= next;
    end

endmodule

`default_nettype wire
