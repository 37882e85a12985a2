// A Noise engine on flynn/noise, driven line by line: one command and its hex arguments on stdin, "ok HEX" or "error" on stdout.
//
//	initiator STATIC_PRIVATE REMOTE_STATIC PROLOGUE | responder STATIC_PRIVATE PROLOGUE
//	write PAYLOAD | read MESSAGE | psk KEY | hash | remote
//	seal PLAINTEXT | open RECORD | rekey-sending | rekey-receiving
package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/flynn/noise"
	"golang.org/x/crypto/curve25519"
)

const longestLine = 1 << 18

type engine struct {
	handshake          *noise.HandshakeState
	initiator          bool
	psk                []byte
	sending, receiving *noise.CipherState
}

func start(initiator bool, private, remote, prologue []byte) (*engine, error) {
	public, err := curve25519.X25519(private, curve25519.Basepoint)
	if err != nil {
		return nil, err
	}
	// Version 1.0.0 has no SetPresharedKey: the state keeps this slice, which is filled when the psk is known.
	psk := make([]byte, 32)
	state, err := noise.NewHandshakeState(noise.Config{
		CipherSuite:           noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashBLAKE2b),
		Pattern:               noise.HandshakeXK,
		Initiator:             initiator,
		Prologue:              prologue,
		PresharedKey:          psk,
		PresharedKeyPlacement: 3,
		StaticKeypair:         noise.DHKey{Private: private, Public: public},
		PeerStatic:            remote,
	})
	return &engine{handshake: state, initiator: initiator, psk: psk}, err
}

// Split's first state is the initiator's for sending.
func (e *engine) transport(first, second *noise.CipherState) {
	if first == nil {
		return
	}
	if e.initiator {
		e.sending, e.receiving = first, second
	} else {
		e.sending, e.receiving = second, first
	}
}

func (e *engine) do(command string, arguments [][]byte) ([]byte, error) {
	argument := func() []byte { return append([]byte{}, arguments[0]...) }
	switch command {
	case "write":
		message, first, second, err := e.handshake.WriteMessage(nil, argument())
		e.transport(first, second)
		return message, err
	case "read":
		payload, first, second, err := e.handshake.ReadMessage(nil, argument())
		e.transport(first, second)
		return payload, err
	case "psk":
		copy(e.psk, arguments[0])
		return nil, nil
	case "hash":
		return e.handshake.ChannelBinding(), nil
	case "remote":
		return e.handshake.PeerStatic(), nil
	case "seal":
		return e.sending.Encrypt(nil, nil, argument())
	case "open":
		return e.receiving.Decrypt(nil, nil, argument())
	case "rekey-sending":
		e.sending.Rekey()
		return nil, nil
	case "rekey-receiving":
		e.receiving.Rekey()
		return nil, nil
	}
	return nil, errors.New("unknown command")
}

func parse(line string) (string, [][]byte, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", nil, errors.New("empty line")
	}
	arguments := [][]byte{}
	for _, word := range words[1:] {
		argument, err := hex.DecodeString(word)
		if err != nil {
			return "", nil, err
		}
		arguments = append(arguments, argument)
	}
	return words[0], append(arguments, nil), nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, longestLine), longestLine)
	var current *engine
	for lines.Scan() {
		command, arguments, err := parse(lines.Text())
		var result []byte
		switch {
		case err != nil:
		case command == "initiator":
			current, err = start(true, arguments[0], arguments[1], arguments[2])
		case command == "responder":
			current, err = start(false, arguments[0], nil, arguments[1])
		default:
			result, err = current.do(command, arguments)
		}
		if err != nil {
			fmt.Println("error")
			continue
		}
		fmt.Println("ok " + hex.EncodeToString(result))
	}
}
