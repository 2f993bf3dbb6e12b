package boot

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"rocelink/boards/slot"
	"rocelink/fpga/roce"
)

// settings are what a person may choose about a board.
type settings struct {
	nats       string // URLs; may hold a password, never logged
	name       string
	address    string // of the fabric's port
	registers  string // file in place of the register aperture
	ip         ipSetting
	netdev     string // interface; "": the first with a carrier
	dns        []netip.Addr
	ntp        []string // nil: who is known otherwise; empty: nobody
	shell      bool
	card       time.Duration // how long to wait for a card; negative: do not look
	watchdog   time.Duration // 0: none
	files      access
	mac, fec   string
	mtu        string
	class      string // traffic class
	logLevel   string
	noWatchdog bool
	slot       string // whose image runs; "": there is one only
	trial      bool   // it is new and must report in
}

// access are the files for access to NATS. A name without a slash is a file of
// the card.
type access struct{ creds, nkey, ca, cert, key string }

// ipSetting is how the processor's own network port gets its address.
type ipSetting struct {
	dhcp, none bool
	prefix     netip.Prefix
	gateway    netip.Addr
}

const (
	defaultCard     = 2 * time.Second
	maxCard         = 30 * time.Second
	defaultWatchdog = 15 * time.Second
	minWatchdog     = 3 * time.Second
	maxWatchdog     = 10 * time.Minute
	maxName         = 64 // what a board's name may have (rocelink.MaxNameBytes)
)

func defaults() settings {
	return settings{ip: ipSetting{dhcp: true}, card: defaultCard, watchdog: defaultWatchdog}
}

// pair is a key with its value.
type pair struct{ key, value string }

// source is where settings come from.
type source struct {
	name     string // for a person: "kernel command line"
	pairs    []pair
	problems []string // what could not be read
}

// setters are the keys. Each setter leaves the settings alone when it fails.
var setters = map[string]func(*settings, string) error{
	"nats":          setNATS,
	"name":          setName,
	"address":       setAddress,
	"registers":     path(func(s *settings) *string { return &s.registers }),
	"ip":            setIP,
	"interface":     setInterface,
	"dns":           setDNS,
	"ntp":           setNTP,
	"shell":         setShell,
	"card":          setCard,
	"watchdog":      setWatchdog,
	"creds":         file(func(s *settings) *string { return &s.files.creds }),
	"nkey":          file(func(s *settings) *string { return &s.files.nkey }),
	"tls-ca":        file(func(s *settings) *string { return &s.files.ca }),
	"tls-cert":      file(func(s *settings) *string { return &s.files.cert }),
	"tls-key":       file(func(s *settings) *string { return &s.files.key }),
	"mac":           setMAC,
	"fec":           word(func(s *settings) *string { return &s.fec }, "none", "off", "rs"),
	"mtu":           word(func(s *settings) *string { return &s.mtu }, "256", "512", "1024", "2048", "4096"),
	"traffic-class": setClass,
	"slot":          setSlot,
	"log-level":     word(func(s *settings) *string { return &s.logLevel }, "debug", "info", "warn", "error"),
}

// apply takes a source's settings over those before it and returns what is
// wrong with them. A wrong value leaves the one before in force.
func (s *settings) apply(src source) (problems []string) {
	for _, p := range src.problems {
		problems = append(problems, src.name+": "+p)
	}
	for _, p := range src.pairs {
		set, ok := setters[p.key]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: unknown key %.40q: the keys are %s", src.name, p.key, strings.Join(keyNames(), ", ")))
			continue
		}
		if err := set(s, p.value); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s: %v", src.name, p.key, err))
		}
	}
	return problems
}

// check finds what contradicts itself, takes it out and returns it.
func (s *settings) check() (problems []string) {
	if (s.files.cert == "") != (s.files.key == "") {
		problems = append(problems, "tls-cert and tls-key go together")
		s.files.cert, s.files.key = "", ""
	}
	if s.files.creds != "" && s.files.nkey != "" {
		problems = append(problems, "creds and nkey exclude each other")
		s.files.nkey = ""
	}
	return problems
}

func keyNames() []string {
	names := make([]string, 0, len(setters))
	for k := range setters {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// natsHosts are the hosts of the NATS servers.
func (s *settings) natsHosts() []string {
	var hosts []string
	for u := range strings.SplitSeq(s.nats, ",") {
		if u, err := parseNATS(u); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// parseNATS reads a server's URL as boardd does.
func parseNATS(text string) (*url.URL, error) {
	if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("want nats://host:4222") // text may hold a password
	}
	return u, nil
}

func setNATS(s *settings, v string) error {
	if v == "none" {
		s.nats = ""
		return nil
	}
	for n, u := range strings.Split(v, ",") {
		if _, err := parseNATS(u); err != nil {
			return fmt.Errorf("URL %d is none: %w, several separated by commas, or none", n+1, err)
		}
	}
	s.nats = v
	return nil
}

func setName(s *settings, v string) error {
	if v == "" || len(v) > maxName || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7F || r == '\uFFFD' }) {
		return fmt.Errorf("%.80q: want 1 to %d bytes of printable text", v, maxName)
	}
	s.name = v
	return nil
}

func setAddress(s *settings, v string) error {
	a, err := hostAddress(v)
	if err != nil {
		return err
	}
	s.address = a.String()
	return nil
}

func hostAddress(v string) (netip.Addr, error) {
	a, err := netip.ParseAddr(v)
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		return a, fmt.Errorf("%.60q: want the IP address of a host", v)
	}
	return a.Unmap(), nil
}

func setIP(s *settings, v string) error {
	ip, err := parseIP(v)
	if err == nil {
		s.ip = ip
	}
	return err
}

// parseIP reads "dhcp", "none" or an address with its prefix length, perhaps
// with a gateway.
func parseIP(v string) (ipSetting, error) {
	switch v {
	case "dhcp":
		return ipSetting{dhcp: true}, nil
	case "none":
		return ipSetting{none: true}, nil
	}
	prefix, gateway, more := strings.Cut(v, ",")
	p, err := netip.ParsePrefix(prefix)
	if err != nil || p.Addr().IsUnspecified() || p.Addr().IsMulticast() || p.Addr().Is4In6() {
		return ipSetting{}, fmt.Errorf("%.80q: want dhcp, none, or an address such as 10.0.0.2/24,10.0.0.1 with the gateway last", v)
	}
	ip := ipSetting{prefix: p}
	if !more {
		return ip, nil
	}
	if ip.gateway, err = hostAddress(gateway); err != nil {
		return ipSetting{}, fmt.Errorf("gateway %w", err)
	}
	if !p.Contains(ip.gateway) && !ip.gateway.IsLinkLocalUnicast() || ip.gateway.Is4() != p.Addr().Is4() || ip.gateway == p.Addr() {
		return ipSetting{}, fmt.Errorf("gateway %v: want another host of %v", ip.gateway, p.Masked())
	}
	return ip, nil
}

func setInterface(s *settings, v string) error {
	// The kernel's rule for names (dev_valid_name, IFNAMSIZ).
	if v == "" || len(v) > 15 || v == "." || v == ".." || strings.ContainsAny(v, "/: \t\n") {
		return fmt.Errorf("%.40q: want the name of a network interface such as eth0", v)
	}
	s.netdev = v
	return nil
}

func setDNS(s *settings, v string) error {
	var list []netip.Addr
	for t := range strings.SplitSeq(v, ",") {
		a, err := hostAddress(strings.TrimSpace(t))
		if err != nil {
			return err
		}
		list = append(list, a)
	}
	s.dns = list
	return nil
}

func setNTP(s *settings, v string) error {
	if v == "none" {
		s.ntp = []string{}
		return nil
	}
	var list []string
	for t := range strings.SplitSeq(v, ",") {
		t = strings.TrimSpace(t)
		if t == "" || len(t) > 253 || strings.ContainsAny(t, " \t/@") {
			return fmt.Errorf("%.80q: want hosts separated by commas, or none", v)
		}
		list = append(list, t)
	}
	s.ntp = list
	return nil
}

// setSlot takes what the boot loader tells of the image it started.
func setSlot(s *settings, v string) error {
	name, rest, more := strings.Cut(v, ",")
	if !slot.Valid(name) || more && rest != "trial" {
		return fmt.Errorf("%.20q: want a or b, and \",trial\" for an image that must report in", v)
	}
	s.slot, s.trial = name, more
	return nil
}

func setShell(s *settings, v string) error {
	switch v {
	case "1", "true", "":
		s.shell = true
	case "0", "false":
		s.shell = false
	default:
		return fmt.Errorf("%.20q: want 1 or 0", v)
	}
	return nil
}

func setCard(s *settings, v string) error {
	if v == "none" {
		s.card = -1
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > maxCard {
		return fmt.Errorf("%.20q: want none, or how long to wait for the card, up to %v", v, maxCard)
	}
	s.card = d
	return nil
}

func setWatchdog(s *settings, v string) error {
	if v == "none" {
		s.watchdog, s.noWatchdog = 0, true
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < minWatchdog || d > maxWatchdog {
		return fmt.Errorf("%.20q: want none, or a time of %v to %v", v, minWatchdog, maxWatchdog)
	}
	s.watchdog, s.noWatchdog = d, false
	return nil
}

func setMAC(s *settings, v string) error {
	m, err := roce.ParseMAC(v)
	if err != nil || !m.IsUnicast() {
		return fmt.Errorf("%.40q: want a unicast MAC address", v)
	}
	s.mac = m.String()
	return nil
}

func setClass(s *settings, v string) error {
	n, err := strconv.ParseUint(v, 0, 8)
	if err != nil {
		return fmt.Errorf("%.20q: want 0 to 255", v)
	}
	s.class = strconv.FormatUint(n, 10)
	return nil
}

// word sets a field to one of the words.
func word(field func(*settings) *string, words ...string) func(*settings, string) error {
	return func(s *settings, v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%.20q: want one of %s", v, strings.Join(words, ", "))
		}
		*field(s) = v
		return nil
	}
}

// path sets a field to an absolute path.
func path(field func(*settings) *string) func(*settings, string) error {
	return func(s *settings, v string) error {
		if !strings.HasPrefix(v, "/") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%.80q: want an absolute path", v)
		}
		*field(s) = v
		return nil
	}
}

// file sets a field to a file of the card or an absolute path.
func file(field func(*settings) *string) func(*settings, string) error {
	return func(s *settings, v string) error {
		if v == "" || v == "." || v == ".." || !strings.HasPrefix(v, "/") && strings.Contains(v, "/") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%.80q: want the name of a file on the card, or an absolute path", v)
		}
		*field(s) = v
		return nil
	}
}

// hostname makes a host name of a board's name: letters, digits and single
// hyphens, at most 63 (RFC 1123, 2.1).
func hostname(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	if h := strings.TrimRight(b.String(), "-"); h != "" {
		return h
	}
	return defaultName
}
