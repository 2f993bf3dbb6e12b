package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// How long certificates are valid. Boards often have no clock until they are
// told the time, so validity begins a day before.
const (
	authorityYears = 20
	serverYears    = 2
	before         = 24 * time.Hour
)

func serial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// makeAuthority makes the private certificate authority.
func (d *Directory) makeAuthority() error {
	fail := func(err error) error { return fmt.Errorf("access: certificate authority: %w", err) }
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	n, err := serial()
	if err != nil {
		return fail(err)
	}
	now := time.Now().UTC()
	template := &x509.Certificate{
		SerialNumber: n, Subject: pkix.Name{CommonName: "rocelink access"},
		NotBefore: now.Add(-before), NotAfter: now.AddDate(authorityYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fail(err)
	}
	if err := writeKey(d.Path(caKeyFile), key); err != nil {
		return err
	}
	return replace(d.Path(caFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
}

// makeServerCertificate makes a key and a certificate for the server's hosts.
func (d *Directory) makeServerCertificate() error {
	fail := func(err error) error { return fmt.Errorf("access: server certificate: %w", err) }
	ca, caKey, err := d.authority()
	if err != nil {
		return fail(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	n, err := serial()
	if err != nil {
		return fail(err)
	}
	now := time.Now().UTC()
	template := &x509.Certificate{
		SerialNumber: n, Subject: pkix.Name{CommonName: d.state.Server.Hosts[0]},
		NotBefore: now.Add(-before), NotAfter: now.AddDate(serverYears, 0, 0),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range d.state.Server.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return fail(err)
	}
	// A server that reloads between the two keeps what it had: they do not fit.
	if err := writeKey(d.Path(serverKeyFile), key); err != nil {
		return err
	}
	return replace(d.Path(serverCert), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
}

func (d *Directory) authority() (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := os.ReadFile(d.Path(caFile))
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(d.Path(caKeyFile))
	if err != nil {
		return nil, nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("%s or %s: %w: want PEM", caFile, caKeyFile, ErrInvalid)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", caFile, ErrInvalid, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", caKeyFile, ErrInvalid) // what is wrong might show the key
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %w: not a signing key", caKeyFile, ErrInvalid)
	}
	return cert, signer, nil
}

func writeKey(name string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return errors.New("access: a private key cannot be encoded")
	}
	return replace(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// Expires is when the server's certificate ends.
func (d *Directory) Expires() (time.Time, error) {
	data, err := os.ReadFile(d.Path(serverCert))
	if err != nil {
		return time.Time{}, fmt.Errorf("access: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, fmt.Errorf("access: %s: %w: want PEM", serverCert, ErrInvalid)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("access: %s: %w: %w", serverCert, ErrInvalid, err)
	}
	return cert.NotAfter, nil
}
