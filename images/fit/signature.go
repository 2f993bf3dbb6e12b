package fit

import (
	"crypto/ed25519"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"rocelink/boards/slot"
)

// ErrSignature means that a signature is not that of the image under the key.
var ErrSignature = slot.ErrSignature

// Sign returns the detached signature of a whole image file: Ed25519ph, 64
// bytes.
func Sign(key ed25519.PrivateKey, image []byte) ([]byte, error) {
	h := sha512.Sum512(image)
	return key.Sign(nil, h[:], slot.SignatureOptions)
}

// Verify checks a detached signature. The error matches ErrSignature.
func Verify(key ed25519.PublicKey, image, signature []byte) error {
	h := sha512.Sum512(image)
	if err := slot.Verify(key, h[:], signature); err != nil {
		return fmt.Errorf("image of %d bytes: %w", len(image), err)
	}
	return nil
}

// ParseSigningKey reads an Ed25519 key as `openssl genpkey -algorithm ed25519`
// writes it: PKCS #8 in PEM.
func ParseSigningKey(text []byte) (ed25519.PrivateKey, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block PRIVATE KEY: make one with openssl genpkey -algorithm ed25519")
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", k)
	}
	return key, nil
}

// ParsePublicKey reads a public key as `openssl pkey -pubout` writes it.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) { return slot.ParsePublicKey(text) }
