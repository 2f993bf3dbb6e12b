# AMD ZCU111, four SFP28 on GTY bank 128, clocked by the Si570 of bank 129. The
# aperture is that of boards/zcu111/board.yaml. The pins of TX_DISABLE are not
# known here and not driven; without them the transmitters may stay off.
set board {
    part         xczu28dr-ffvg1517-2-e
    cmac         CMACE4_X0Y0
    quad         X0Y4~X0Y7
    refclk_mhz   156.25
    refclk_pins  {V31 V32}
    base         0xA0000000
    roce         0x0
    mac          0x10000
    standard     LVCMOS18
    lines        {}
}
