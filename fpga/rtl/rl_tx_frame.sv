// Makes frames of headers and of payload out of the ring: exactly as many beats
// as a frame has and none between two frames, as long as there is room behind.
//
// A header ends at byte 54, 58, 6 or 10 of a beat, so that payload beats are
// rotated by one of four amounts; what falls over the end goes with the next
// beat. A beat that has left the first stage is never held: room counts the
// places behind that are not promised yet.
`default_nettype none

module rl_tx_frame #(
    parameter ROOM = 32 // beats that fit behind
) (
    input  wire         clk,
    input  wire         rst,

    // Headers
    input  wire         s_valid,
    input  wire [591:0] s_header,
    input  wire [3:0]   s_qp,
    input  wire [11:0]  s_start,
    input  wire [6:0]   s_payload_beats,
    input  wire [6:0]   s_left,    // beats behind the first
    input  wire [3:0]   s_tail,
    input  wire [1:0]   s_shape,

    // A packet's last beat has been asked for
    output reg          done,

    // The ring: data comes two cycles after read, and zeros without
    output reg          ring_read,
    output reg  [15:0]  ring_address,
    input  wire [511:0] ring_data,

    // A beat left the queue behind
    input  wire         freed,

    // Frames without ICRC
    output reg          m_valid,
    output reg          m_first,
    output reg          m_last,
    output reg  [3:0]   m_tail,
    output reg  [511:0] m_data
);

    // Headers wait here; the sender limits how many there are.
    reg  [3:0]   header_in, header_out;
    wire [591:0] header4;
    wire         header_read;
    rl_store #(.WIDTH(592)) headers (
        .clk(clk), .write(s_valid), .waddress(header_in), .wdata(s_header),
        .read(header_read), .raddress(header_out), .rdata(header4)
    );

    wire        next_empty;
    wire [3:0]  next_qp;
    wire [11:0] next_start;
    wire [6:0]  next_payload_beats, next_left;
    wire [3:0]  next_tail;
    wire [1:0]  next_shape;
    wire        take;
    rl_fifo #(.WIDTH(36)) packets (
        .clk(clk), .rst(rst), .push(s_valid),
        .in({s_qp, s_start, s_payload_beats, s_left, s_tail, s_shape}), .full(),
        .pop(take), .out({next_qp, next_start, next_payload_beats, next_left, next_tail, next_shape}),
        .empty(next_empty)
    );

    // Stage 0: one beat of the present packet a cycle.
    reg         busy;
    reg         begins;  // the next beat is the first
    reg         second;  // the next beat is the second
    reg         ends;    // the next beat is the last
    reg [6:0]   left;    // beats behind the next one
    reg [6:0]   payload_left;
    reg [15:0]  address;
    reg [3:0]   tail;
    reg [1:0]   shape;
    reg [5:0]   room;
    reg         roomy;
    wire        issue = busy && roomy;

    assign take = !next_empty && (!busy || issue && ends);

    wire        pays = issue && payload_left != 7'd0 && !(begins && shape[1]);

    always @(posedge clk) begin
        if (take) begin
            begins       <= 1'b1;
            second       <= 1'b0;
            ends         <= next_left == 7'd0;
            left         <= next_left;
            payload_left <= next_payload_beats;
            address      <= {next_qp, next_start};
            tail         <= next_tail;
            shape        <= next_shape;
        end else if (issue) begin
            begins <= 1'b0;
            second <= begins;
            ends   <= left == 7'd1;
            left   <= left - 7'd1;
            if (pays) begin
                payload_left  <= payload_left - 7'd1;
                address[11:0] <= address[11:0] + 12'd1;
            end
        end
        if (rst) begin
            busy      <= 1'b0;
            room      <= ROOM[5:0];
            roomy     <= 1'b0;
            header_in <= 4'd0;
        end else begin
            if (take)
                busy <= 1'b1;
            else if (issue && ends)
                busy <= 1'b0;
            room  <= room - {5'd0, issue} + {5'd0, freed};
            roomy <= room > 6'd1;
            if (s_valid)
                header_in <= header_in + 4'd1;
        end
        done         <= issue && ends && !rst;
        ring_read    <= pays;
        ring_address <= address;
    end

    // Stages 1 to 3: the ring is read. Flags travel beside.
    reg [3:1]  valid_s, first_s, second_s, last_s;
    reg [11:0] tail_s;
    reg [5:0]  shape_s;

    always @(posedge clk) begin
        valid_s  <= rst ? 3'd0 : {valid_s[2:1], issue};
        first_s  <= {first_s[2:1], begins};
        second_s <= {second_s[2:1], second};
        last_s   <= {last_s[2:1], ends};
        tail_s   <= {tail_s[7:0], tail};
        shape_s  <= {shape_s[3:0], shape};
    end

    // Stage 4: rotate by the length of the header. The header itself is read
    // with its first beat.
    reg         valid4, first4, second4, last4;
    reg [3:0]   tail4;
    reg [1:0]   shape4;
    reg [511:0] turned;
    assign      header_read = valid_s[3] && first_s[3];

    always @(posedge clk) begin
        valid4  <= valid_s[3] && !rst;
        first4  <= first_s[3];
        second4 <= second_s[3] && shape_s[5];
        last4   <= last_s[3];
        tail4   <= tail_s[11:8];
        shape4  <= shape_s[5:4];
        case (shape_s[5:4])
            2'd0:    turned <= {ring_data[79:0],  ring_data[511:80]};
            2'd1:    turned <= {ring_data[47:0],  ring_data[511:48]};
            2'd2:    turned <= {ring_data[463:0], ring_data[511:464]};
            default: turned <= {ring_data[431:0], ring_data[511:432]};
        endcase
        if (rst)
            header_out <= 4'd0;
        else if (header_read)
            header_out <= header_out + 4'd1;
    end

    // Stage 5: each byte is of the header, of this beat or of the one before.
    reg  [511:0] carry;
    genvar b;
    generate
        for (b = 0; b < 64; b = b + 1) begin : lane
            reg here;
            always @* case (shape4)
                2'd0:    here = b >= 54;
                2'd1:    here = b >= 58;
                2'd2:    here = b >= 6;
                default: here = b >= 10;
            endcase
            wire head = first4 && (shape4[1] || !here);
            wire [7:0] rest;
            if (b < 10)
                assign rest = second4 ? header4[8*(64+b) +: 8] : carry[8*b +: 8];
            else
                assign rest = carry[8*b +: 8];
            always @(posedge clk) begin
                if (head)
                    m_data[8*b +: 8] <= header4[8*b +: 8];
                else if (here)
                    m_data[8*b +: 8] <= turned[8*b +: 8];
                else
                    m_data[8*b +: 8] <= rest;
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (valid4)
            carry <= turned;
        m_valid <= valid4 && !rst;
        m_first <= first4;
        m_last  <= last4;
        m_tail  <= tail4;
    end

endmodule

`default_nettype wire
