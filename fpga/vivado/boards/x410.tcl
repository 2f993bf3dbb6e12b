# A board like the USRP X410, QSFP1 on GTY bank 128. The aperture is that of
# boards/x410/board.yaml. The pins of the reference clock are not published in
# a form this project has checked: give them on the command line. The lines of
# the cage are not driven, since the polarity of its reset is not known.
set board {
    part         xczu28dr-ffvg1517-1-e
    cmac         CMACE4_X0Y0
    quad         X0Y4~X0Y7
    refclk_mhz   156.25
    refclk_pins  {}
    base         0x1000000000
    roce         0x0
    mac          0x10000
    standard     LVCMOS12
    lines        {}
}
