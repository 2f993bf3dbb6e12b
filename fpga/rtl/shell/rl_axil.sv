// An AXI4-Lite slave in front of the core's register bus, in the core's clock.
//
// One access is under way at a time; where a read and a write wait, they take
// turns. What the register bus does not have is refused with SLVERR: an address
// that is not a multiple of four or beyond the bus, and a write of less than 32
// bits. A write that is refused never reaches the bus, and a read that is refused
// gives 0: its address does reach it, where reading changes nothing.
//
// The core makes its reset longer, and a write in that time would be lost. So
// nothing is taken for HOLD cycles after a reset.
`default_nettype none

module rl_axil #(
    parameter       ADDRESS_BITS = 17,    // more than 16
    parameter [7:0] HOLD         = 8'd160 // longer than the reset of rl_core
) (
    input  wire                    clk,
    input  wire                    rst,

    input  wire                    s_axil_awvalid,
    output wire                    s_axil_awready,
    input  wire [ADDRESS_BITS-1:0] s_axil_awaddr,
    input  wire                    s_axil_wvalid,
    output wire                    s_axil_wready,
    input  wire [31:0]             s_axil_wdata,
    input  wire [3:0]              s_axil_wstrb,
    output wire                    s_axil_bvalid,
    input  wire                    s_axil_bready,
    output wire [1:0]              s_axil_bresp,
    input  wire                    s_axil_arvalid,
    output wire                    s_axil_arready,
    input  wire [ADDRESS_BITS-1:0] s_axil_araddr,
    output wire                    s_axil_rvalid,
    input  wire                    s_axil_rready,
    output reg  [31:0]             s_axil_rdata,
    output wire [1:0]              s_axil_rresp,

    // Register bus, see rl_core
    output wire                    bus_write,
    output reg  [15:0]             bus_address,
    output reg  [31:0]             bus_wdata,
    input  wire [31:0]             bus_rdata
);

    localparam [1:0] OKAY = 2'b00, SLVERR = 2'b10;
    localparam [2:0] IDLE = 3'd0, WRITE = 3'd1, WRITTEN = 3'd2, READ = 3'd3, WAIT = 3'd4, DATA = 3'd5, ANSWER = 3'd6;

    reg [7:0] hold;
    reg [2:0] state;
    reg       refused;
    reg       turn;     // the last access was a write

    wire idle   = state == IDLE && hold == 8'd0 && !rst;
    wire write  = s_axil_awvalid && s_axil_wvalid;
    wire writes = idle && write && !(turn && s_axil_arvalid);
    wire reads  = idle && s_axil_arvalid && !(!turn && write);

    // Address and data of a write are taken together, so that a reset never
    // leaves one of them behind.
    assign s_axil_awready = writes;
    assign s_axil_wready  = writes;
    assign s_axil_arready = reads;
    assign s_axil_bvalid  = state == WRITTEN && !rst;
    assign s_axil_rvalid  = state == ANSWER && !rst;
    assign s_axil_bresp   = refused ? SLVERR : OKAY;
    assign s_axil_rresp   = refused ? SLVERR : OKAY;
    assign bus_write      = state == WRITE && !refused && !rst;

    always @(posedge clk) begin
        case (state)
            IDLE: if (writes) begin
                state       <= WRITE;
                turn        <= 1'b1;
                bus_address <= s_axil_awaddr[15:0];
                bus_wdata   <= s_axil_wdata;
                refused     <= s_axil_awaddr[1:0] != 2'd0 || s_axil_awaddr[ADDRESS_BITS-1:16] != 0 || s_axil_wstrb != 4'hf;
            end else if (reads) begin
                state       <= READ;
                turn        <= 1'b0;
                bus_address <= s_axil_araddr[15:0];
                refused     <= s_axil_araddr[1:0] != 2'd0 || s_axil_araddr[ADDRESS_BITS-1:16] != 0;
            end
            WRITE:   state <= WRITTEN;
            WRITTEN: if (s_axil_bready) state <= IDLE;
            READ:    state <= WAIT;
            WAIT:    state <= DATA;
            DATA: begin
                state        <= ANSWER;
                s_axil_rdata <= refused ? 32'd0 : bus_rdata;
            end
            ANSWER:  if (s_axil_rready) state <= IDLE;
            default: state <= IDLE;
        endcase
        if (hold != 8'd0)
            hold <= hold - 8'd1;
        if (rst) begin
            state <= IDLE;
            turn  <= 1'b0;
            hold  <= HOLD;
        end
    end

endmodule

`default_nettype wire
