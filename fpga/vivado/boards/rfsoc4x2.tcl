# RealDigital RFSoC 4x2, QSFP28 on GTY bank 128. The aperture is that of
# boards/rfsoc4x2/board.yaml; the pins are those of the public base design.
set board {
    part         xczu48dr-ffvg1517-2-e
    cmac         CMACE4_X0Y0
    quad         X0Y4~X0Y7
    refclk_mhz   156.25
    refclk_pins  {AA33 AA34}
    base         0xA0000000
    roce         0x0
    mac          0x10000
    standard     LVCMOS18
    lines        {qsfp_resetl AL21 1 qsfp_lpmode AN22 0 qsfp_modsell AK22 0}
}
