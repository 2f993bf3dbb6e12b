//go:build linux

package lab

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

const unitPatience = 10 * time.Second

var (
	portMAC, farMAC = roce.MAC{2, 0, 0, 0, 0, 1}, roce.MAC{2, 0, 0, 0, 0, 2}
	portIP, farIP   = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
)

// cable is a wire whose other end is here too.
func cable(t *testing.T) (*Wire, net.Conn) {
	t.Helper()
	w, f, err := newWire()
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = far.Close(), w.Close() })
	if err := far.SetDeadline(time.Now().Add(unitPatience)); err != nil {
		t.Fatal(err)
	}
	return w, far
}

// serve runs a port until the case ends.
func serve(t *testing.T, w *Wire, take func([]byte)) *Port {
	t.Helper()
	p := &Port{Wire: w, MAC: portMAC, Address: portIP}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(take) }()
	t.Cleanup(func() {
		_ = w.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func roceFrame(t *testing.T, id uint16, payload string) []byte {
	t.Helper()
	f := roce.Frame{Dst: portMAC, Src: farMAC, Flow: roce.Flow{Src: farIP, Dst: portIP, SrcPort: 50000, ID: id},
		Packet: roce.Packet{BTH: roce.BTH{Opcode: roce.SendOnly, PKey: roce.PKeyDefault, DestQP: 17, PSN: 3}, Payload: []byte(payload)}}
	b := make([]byte, roce.MaxFrame)
	n, err := f.Put(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:roce.Pad(b, n)]
}

func arpRequest(t *testing.T, target netip.Addr) []byte {
	t.Helper()
	from, to := farIP.As4(), target.As4()
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: farMAC[:], DstMAC: net.HardwareAddr{255, 255, 255, 255, 255, 255}, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: farMAC[:], SourceProtAddress: from[:], DstHwAddress: make([]byte, 6), DstProtAddress: to[:]},
	); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPort(t *testing.T) {
	w, far := cable(t)
	taken := make(chan []byte, 10)
	p := serve(t, w, func(b []byte) { taken <- bytes.Clone(b) })
	strange := roceFrame(t, 0, "for another host")
	strange[5]++
	for _, b := range [][]byte{{1}, arpRequest(t, farIP), strange, roceFrame(t, 0, "x")[:41], roceFrame(t, 7, "hello"), arpRequest(t, portIP)} {
		if _, err := far.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	reply := make([]byte, maxFrame)
	n, err := far.Read(reply)
	if err != nil {
		t.Fatal(err)
	}
	arp, ok := gopacket.NewPacket(reply[:n], layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok || arp.Operation != layers.ARPReply || !bytes.Equal(arp.SourceHwAddress, portMAC[:]) || !bytes.Equal(arp.DstHwAddress, farMAC[:]) ||
		!bytes.Equal(arp.SourceProtAddress, portIP.AsSlice()) || !bytes.Equal(reply[:6], farMAC[:]) {
		t.Errorf("answer %x", reply[:n])
	}
	// What is taken behind the request shows that the request is counted.
	if _, err := far.Write(roceFrame(t, 8, "again")); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]byte{roceFrame(t, 7, "hello"), roceFrame(t, 8, "again")} {
		if b := <-taken; !bytes.Equal(b, want) {
			t.Errorf("took %x", b)
		}
	}
	if c := p.Counters(); c != (PortCounters{ARP: 1, Passed: 2, Other: 4}) {
		t.Errorf("%+v", c)
	}
}

var unitAddress atomic.Uint32

func init() { unitAddress.Store(uint32(os.Getpid()) * 8) }

func unitLoopback() netip.Addr {
	n := unitAddress.Add(1)
	return netip.AddrFrom4([4]byte{127, 45, byte(n >> 8), byte(n)})
}

func TestGateway(t *testing.T) {
	w, far := cable(t)
	device, err := udp.Listen(netip.AddrPortFrom(unitLoopback(), roce.Port), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }()
	var g atomic.Pointer[Gateway]
	p := serve(t, w, func(b []byte) { g.Load().Take(b) })
	near := unitLoopback()
	made, err := NewGateway(p, farMAC, farIP, near, device.LocalAddr().Addr())
	if err != nil {
		t.Fatal(err)
	}
	g.Store(made)
	defer func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	}()

	wrong := roceFrame(t, 0x1234, "spoilt")
	wrong[60] ^= 1
	short := roceFrame(t, 0, "cut")
	short[17] -= 40 // the IP length
	for _, b := range [][]byte{wrong, short, roceFrame(t, 0x1234, "ping")} {
		if _, err := far.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	batch := device.NewBatch(0)
	n := 0
	for n == 0 {
		if ok, err := device.Wait(unitPatience); !ok || err != nil {
			t.Fatal("nothing came", err)
		}
		if n, err = device.Receive(batch); err != nil {
			t.Fatal(err)
		}
	}
	packet, from := batch.Packet(0)
	flow := device.FlowFrom(from)
	var got roce.Packet
	if err := got.Decode(packet); n != 1 || err != nil || !flow.Check(packet) || string(got.Payload) != "ping" || from.Addr() != near {
		t.Errorf("%d packets from %v, ICRC right: %v, %+v, %v", n, from, flow.Check(packet), got, err)
	}

	// And back, one of them spoilt.
	answer := roce.Packet{BTH: roce.BTH{Opcode: roce.Acknowledge, PKey: roce.PKeyDefault, DestQP: 5, PSN: 3},
		AETH: roce.AETH{Syndrome: roce.ACK(roce.CreditsInvalid), MSN: 1}}
	queue := device.NewSendQueue(2)
	for _, spoil := range []byte{1, 0} {
		b := make([]byte, answer.Len())
		if _, err := answer.Put(b); err != nil {
			t.Fatal(err)
		}
		back := device.FlowTo(from)
		back.Seal(b)
		b[len(b)-1] ^= spoil
		queue.Add(from, b)
	}
	for queue.Len() > 0 {
		if _, err := device.Send(queue); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, maxFrame)
	size, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var f roce.Frame
	if err := f.Decode(b[:size]); err != nil || !f.ICRCOK(b[:size]) || f.Dst != farMAC || f.Src != portMAC || f.Flow.Src != portIP ||
		f.Flow.Dst != farIP || f.Packet.DestQP != 5 || size != 62 {
		t.Errorf("%d bytes, %+v, %v", size, f, err)
	}
	// A frame can be read before it is counted.
	want := GatewayCounters{In: 1, Out: 1, BadICRC: 2, Malformed: 1, Numbered: 1}
	for deadline := time.Now().Add(unitPatience); made.Counters() != want; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, want %+v", made.Counters(), want)
		}
	}
}
