//go:build linux && cgo && ibverbs

package double

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -libverbs
#cgo noescape dbl_loop
#cgo nocallback dbl_loop
#include <stdlib.h>
#include "double.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"unsafe"
)

// Port states, link layers and GID types of the library.
const (
	PortDown   = C.IBV_PORT_DOWN
	PortArmed  = C.IBV_PORT_ARMED
	PortActive = C.IBV_PORT_ACTIVE

	InfiniBand = C.IBV_LINK_LAYER_INFINIBAND
	Ethernet   = C.IBV_LINK_LAYER_ETHERNET

	TypeIB     = C.IBV_GID_TYPE_IB
	TypeRoCEv1 = C.IBV_GID_TYPE_ROCE_V1
	TypeRoCEv2 = C.IBV_GID_TYPE_ROCE_V2
)

// Asynchronous events of the library.
const (
	EventCommEstablished = C.IBV_EVENT_COMM_EST
	EventQPFatal         = C.IBV_EVENT_QP_FATAL
	EventQPRequest       = C.IBV_EVENT_QP_REQ_ERR
	EventQPAccess        = C.IBV_EVENT_QP_ACCESS_ERR
	EventPathMigration   = C.IBV_EVENT_PATH_MIG_ERR
	EventDeviceFatal     = C.IBV_EVENT_DEVICE_FATAL
	EventPortActive      = C.IBV_EVENT_PORT_ACTIVE
	EventPortError       = C.IBV_EVENT_PORT_ERR
	EventGIDChange       = C.IBV_EVENT_GID_CHANGE
	EventClientReg       = C.IBV_EVENT_CLIENT_REREGISTER
)

// Attribute masks of ibv_modify_qp.
const (
	MaskState = C.IBV_QP_STATE
	MaskInit  = C.IBV_QP_STATE | C.IBV_QP_PKEY_INDEX | C.IBV_QP_PORT | C.IBV_QP_ACCESS_FLAGS
	MaskRTR   = C.IBV_QP_STATE | C.IBV_QP_AV | C.IBV_QP_PATH_MTU | C.IBV_QP_DEST_QPN | C.IBV_QP_RQ_PSN | C.IBV_QP_MAX_DEST_RD_ATOMIC | C.IBV_QP_MIN_RNR_TIMER
	MaskRTS   = C.IBV_QP_STATE | C.IBV_QP_TIMEOUT | C.IBV_QP_RETRY_CNT | C.IBV_QP_RNR_RETRY | C.IBV_QP_SQ_PSN | C.IBV_QP_MAX_QP_RD_ATOMIC
)

// Requests of Send.
const (
	Write    = C.IBV_WR_RDMA_WRITE
	WriteImm = C.IBV_WR_RDMA_WRITE_WITH_IMM
	Send     = C.IBV_WR_SEND
	SendImm  = C.IBV_WR_SEND_WITH_IMM
	Read     = C.IBV_WR_RDMA_READ
)

// Access flags of the library.
const (
	LocalWrite  = C.IBV_ACCESS_LOCAL_WRITE
	RemoteWrite = C.IBV_ACCESS_REMOTE_WRITE
	RemoteRead  = C.IBV_ACCESS_REMOTE_READ
)

// GID is an entry of a GID table.
type GID struct {
	Index, Port, Type, Netdev int
	Address                   netip.Addr // invalid: all zero
}

// Port is what a port reports.
type Port struct{ State, LinkLayer, MTU, Width, Speed int }

// Limits of a device; 0 is plenty.
type Limits struct {
	QP, Receives, CQ, CQE, MR, Reads int
	SRQ, SharedReceives              int
	MRBytes                          uint64
}

// Device describes a device.
type Device struct {
	Name, Uverbs string
	Port         Port
	Limits       Limits
	GIDs         []GID
}

func (p Port) c() C.struct_ibv_port_attr {
	return C.struct_ibv_port_attr{
		state: uint32(p.State), max_mtu: 5, active_mtu: uint32(p.MTU), gid_tbl_len: 64, link_layer: C.uint8_t(p.LinkLayer),
		active_width: C.uint8_t(p.Width), active_speed: C.uint8_t(p.Speed),
	}
}

func entries(gids []GID) []C.struct_ibv_gid_entry {
	es := make([]C.struct_ibv_gid_entry, len(gids)+1)
	for i, g := range gids {
		e := &es[i]
		e.gid_index, e.port_num, e.gid_type, e.ndev_ifindex = C.uint32_t(g.Index), C.uint32_t(g.Port), C.uint32_t(g.Type), C.uint32_t(g.Netdev)
		if g.Address.IsValid() {
			e.gid = g.Address.As16()
		}
	}
	return es
}

func or(v, otherwise int) C.int {
	if v == 0 {
		v = otherwise
	}
	return C.int(v)
}

func text(to *[64]C.char, s string) {
	for i := range min(len(s), len(to)-1) {
		to[i] = C.char(s[i])
	}
}

// Reset makes a new world with these devices. Nothing of the old one may be in
// use.
func Reset(devices ...Device) {
	C.dbl_reset()
	for _, d := range devices {
		c := new(C.struct_dbl_device)
		text(&c.name, d.Name)
		text(&c.uverbs, d.Uverbs)
		c.port = d.Port.c()
		l := &c.limits
		l.max_qp, l.max_qp_wr, l.max_cq, l.max_cqe = or(d.Limits.QP, 1024), or(d.Limits.Receives, 1<<15), or(d.Limits.CQ, 1024), or(d.Limits.CQE, 1<<16)
		l.max_srq, l.max_srq_wr = or(d.Limits.SRQ, 256), or(d.Limits.SharedReceives, 1<<15)
		l.max_mr, l.max_pd, l.max_qp_rd_atom, l.max_qp_init_rd_atom = or(d.Limits.MR, 1024), 1024, or(d.Limits.Reads, 16), or(d.Limits.Reads, 16)
		l.max_mr_size = C.uint64_t(max(d.Limits.MRBytes, 1<<20))
		if d.Limits.MRBytes == 0 {
			l.max_mr_size = 1 << 40
		}
		es := entries(d.GIDs)
		copy(c.gids[:], es)
		c.gid_count = C.int(len(d.GIDs))
		must(C.dbl_add(c))
	}
}

func must(rc C.int) {
	if rc < 0 {
		panic(syscall.Errno(-rc))
	}
}

func result(rc C.int) error {
	if rc < 0 {
		return syscall.Errno(-rc)
	}
	return nil
}

// Functions are the control calls, by name without ibv_. Acknowledging events
// is the real library's.
func Functions() map[string]unsafe.Pointer {
	m := map[string]unsafe.Pointer{}
	for _, name := range []string{
		"fork_init", "get_device_list", "free_device_list", "open_device", "close_device", "query_device", "query_port",
		"query_gid_table", "get_async_event", "alloc_pd", "dealloc_pd", "reg_mr", "dereg_mr", "create_comp_channel",
		"destroy_comp_channel", "create_cq", "destroy_cq", "get_cq_event", "create_qp", "modify_qp", "query_qp", "destroy_qp",
		"create_srq", "modify_srq", "destroy_srq",
	} {
		c := C.CString(name)
		m[name] = C.dbl_function(c)
		C.free(unsafe.Pointer(c))
	}
	return m
}

// Fail has a call (a control call, poll_cq, post_recv, post_srq_recv or req_notify_cq) fail
// `times` times (negative: always) after `after` successes; 0: no more.
func Fail(call string, err syscall.Errno, after, times int) {
	c := C.CString(call)
	defer C.free(unsafe.Pointer(c))
	must(C.dbl_fail(c, C.int(err), C.int(after), C.int(times)))
}

// Calls are the control calls since Reset, in order; one that was made to fail
// has an exclamation mark. Queries of a queue pair's state and of events are
// not among them.
func Calls() []string {
	buf := make([]byte, 1<<16)
	n := C.dbl_calls((*C.char)(unsafe.Pointer(&buf[0])), C.int(len(buf)), 0)
	return strings.Fields(string(buf[:n]))
}

// Live says what is open; "" when nothing is.
func Live() string {
	buf := make([]byte, 1<<10)
	n := C.dbl_live((*C.char)(unsafe.Pointer(&buf[0])), C.int(len(buf)))
	return string(buf[:n])
}

// Hangs is how often a destruction would have waited for ever for an event to
// be acknowledged.
func Hangs() int { return int(C.dbl_hangs()) }

// Modify is one call of ibv_modify_qp.
type Modify struct {
	QPN                                               uint32
	Mask, State, Access, PKeyIndex, Port              int
	MTU, Reads, RNRTimer                              int
	DestQPN, RQPSN, SQPSN, FlowLabel                  uint32
	Global, SGIDIndex, HopLimit, TrafficClass, AVPort int
	DGID                                              [16]byte
	Timeout, Retries, RNRRetries, OwnReads            int
}

// Modified are the calls of ibv_modify_qp since Reset.
func Modified() []Modify {
	var c [256]C.struct_dbl_modify
	n := C.dbl_modified(&c[0], C.int(len(c)))
	out := make([]Modify, n)
	for i := range out {
		a, g := &c[i].attr, &c[i].attr.ah_attr.grh
		out[i] = Modify{
			QPN: uint32(c[i].qpn), Mask: int(c[i].mask), State: int(a.qp_state), Access: int(a.qp_access_flags), PKeyIndex: int(a.pkey_index),
			Port: int(a.port_num), MTU: int(a.path_mtu), Reads: int(a.max_dest_rd_atomic), RNRTimer: int(a.min_rnr_timer),
			DestQPN: uint32(a.dest_qp_num), RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn), FlowLabel: uint32(g.flow_label),
			Global: int(a.ah_attr.is_global), SGIDIndex: int(g.sgid_index), HopLimit: int(g.hop_limit), TrafficClass: int(g.traffic_class),
			AVPort: int(a.ah_attr.port_num), DGID: g.dgid, Timeout: int(a.timeout), Retries: int(a.retry_cnt), RNRRetries: int(a.rnr_retry),
			OwnReads: int(a.max_rd_atomic),
		}
	}
	return out
}

// Created is how deep the last queue pair was asked for.
func Created() (sends, receives, sendSGE, receiveSGE int) {
	var a C.struct_ibv_qp_init_attr
	C.dbl_created(&a)
	return int(a.cap.max_send_wr), int(a.cap.max_recv_wr), int(a.cap.max_send_sge), int(a.cap.max_recv_sge)
}

// SetPort and SetGIDs change a device; no event tells of it.
func SetPort(device int, p Port) {
	c := p.c()
	C.dbl_set_port(C.int(device), &c)
}

// SetGIDs replaces the GID table.
func SetGIDs(device int, gids []GID) {
	es := entries(gids)
	C.dbl_set_gids(C.int(device), &es[0], C.int(len(gids)))
}

// Emit emits an asynchronous event of a port (qpn 0) or of a queue pair.
func Emit(device, event, port int, qpn uint32) error {
	return result(C.dbl_emit(C.int(device), C.int(event), C.uint32_t(port), C.uint32_t(qpn)))
}

// Remove takes the device away: calls fail, and the file of events ends.
func Remove(device int) { must(C.dbl_remove(C.int(device))) }

// Message is what the peer sends: a SEND, or a WRITE to an address.
type Message struct {
	Write        bool
	WithImm      bool
	Imm          uint32
	Address      uint64
	RKey         uint32
	Data         []byte
	SilentLength bool // the completion says length 0
}

// Deliver delivers a message. EAGAIN: receiver not ready. ENOTCONN: the queue
// pair does not receive. EACCES, EMSGSIZE, EFAULT: it does not fit, and the
// queue pair is in error.
func Deliver(qpn uint32, m Message) error {
	var data unsafe.Pointer
	if len(m.Data) > 0 {
		data = C.CBytes(m.Data)
		defer C.free(data)
	}
	return result(C.dbl_deliver(C.uint32_t(qpn), &C.struct_dbl_message{
		write: boolean(m.Write), with_imm: boolean(m.WithImm), imm: C.uint32_t(m.Imm), address: C.uint64_t(m.Address), rkey: C.uint32_t(m.RKey),
		data: data, length: C.uint32_t(len(m.Data)), silent_length: boolean(m.SilentLength),
	}))
}

func boolean(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Fault completes the next receive with an error and flushes the others.
func Fault(qpn uint32, status int, vendor uint32) error {
	return result(C.dbl_fault(C.uint32_t(qpn), C.int(status), C.uint32_t(vendor)))
}

// Completion is any completion at all.
type Completion struct {
	ID                       uint64
	Status, Opcode, Flags    int
	Imm, Length, VendorError uint32
}

// Complete adds a completion that consumes no receive.
func Complete(qpn uint32, c Completion) error {
	return result(C.dbl_complete(C.uint32_t(qpn), C.uint64_t(c.ID), C.int(c.Status), C.int(c.Opcode), C.int(c.Flags),
		C.uint32_t(c.Imm), C.uint32_t(c.Length), C.uint32_t(c.VendorError)))
}

// Posted is how many receives the hardware has, of a shared queue all.
func Posted(qpn uint32) int { return int(C.dbl_posted(C.uint32_t(qpn))) }

// Unacked is how many completion events are not acknowledged.
func Unacked(qpn uint32) int { return int(C.dbl_unacked(C.uint32_t(qpn))) }

// Descriptor is the i-th receive that the hardware has, as it reads it.
func Descriptor(qpn uint32, i int) (address uint64, length, lkey uint32, err error) {
	var a C.uint64_t
	var l, k C.uint32_t
	err = result(C.dbl_descriptor(C.uint32_t(qpn), C.int(i), &a, &l, &k))
	return uint64(a), uint32(l), uint32(k), err
}

// Access is what a region was registered for.
func Access(rkey uint32) int { return int(C.dbl_access(C.uint32_t(rkey))) }

// Generate has a peer use each receive as soon as it is posted.
func Generate(qpn uint32, opcode, flags int, length uint32, on bool) {
	must(C.dbl_generate(C.uint32_t(qpn), C.int(opcode), C.int(flags), C.uint32_t(length), boolean(on)))
}

// Loop is the receive loop in C: poll, look at each status, post again.
func Loop(qpn uint32, base uint64, stride, slots, lkey uint32, batch int, messages int64) (bytes int64, err error) {
	n := C.dbl_loop(C.uint32_t(qpn), C.uint64_t(base), C.uint32_t(stride), C.uint32_t(slots), C.uint32_t(lkey), C.int(batch), C.int64_t(messages))
	if n < 0 {
		return 0, fmt.Errorf("loop in C: %w", syscall.Errno(-n))
	}
	return int64(n), nil
}

// Empty polls an empty queue in C.
func Empty(qpn uint32, polls int64) (found int64) {
	return int64(C.dbl_empty(C.uint32_t(qpn), C.int64_t(polls)))
}

// PostSend posts a request on a queue pair of any libibverbs, signalled.
func PostSend(qp unsafe.Pointer, opcode int, local uint64, length, lkey uint32, remote uint64, rkey, imm uint32, id uint64) error {
	return result(C.dbl_send(qp, C.int(opcode), C.uint64_t(local), C.uint32_t(length), C.uint32_t(lkey), C.uint64_t(remote), C.uint32_t(rkey),
		C.uint32_t(imm), C.uint64_t(id)))
}
