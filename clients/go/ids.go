package memoryd

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewID makes an id for a message, a session, a request: a UUID of version 7 (RFC 9562), ordered by time to a
// millisecond, as 32 lowercase hex digits.
func NewID() string {
	var id [16]byte
	rand.Read(id[6:])
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], milliseconds[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id[:])
}
