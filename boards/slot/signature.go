package slot

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ErrSignature means that a signature is not that of the image under the key.
var ErrSignature = errors.New("wrong signature")

// SignatureOptions make the signature of an image: Ed25519ph (RFC 8032, 5.1)
// over its SHA-512, with a context that separates it from others made with the
// same key.
var SignatureOptions = &ed25519.Options{Hash: crypto.SHA512, Context: "rocelink image"}

// Verify checks a signature by the image's SHA-512. The error matches
// ErrSignature.
func Verify(key ed25519.PublicKey, sum, signature []byte) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("public key of %d bytes, want %d: %w", len(key), ed25519.PublicKeySize, ErrSignature)
	}
	if err := ed25519.VerifyWithOptions(key, sum, signature, SignatureOptions); err != nil {
		return ErrSignature
	}
	return nil
}

// ParsePublicKey reads a public key as `openssl pkey -pubout` writes it.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PUBLIC KEY" {
		return nil, errors.New("no PEM block PUBLIC KEY")
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", k)
	}
	return key, nil
}
