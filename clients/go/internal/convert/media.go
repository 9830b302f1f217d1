package convert

import (
	"encoding/base64"
	"fmt"
	"strings"

	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

// anyImage is the type of an image that is given by reference, whose exact type is not said.
const anyImage = "image/*"

func reference(mediaType, uri string) *memorydv1.Media {
	return &memorydv1.Media{Type: mediaType, Source: &memorydv1.Media_Uri{Uri: uri}}
}

func inPlace(mediaType string, data []byte) *memorydv1.Media {
	return &memorydv1.Media{Type: mediaType, Source: &memorydv1.Media_Data{Data: data}}
}

// uriOf is the reference of media, and whether it is given by one.
func uriOf(media *memorydv1.Media) (string, bool) {
	source, is := media.GetSource().(*memorydv1.Media_Uri)
	if !is {
		return "", false
	}
	return source.Uri, true
}

// base64Bytes is the bytes of base64 text; false when encoding them would not give exactly that text.
func base64Bytes(text string) ([]byte, bool) {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	return data, err == nil && base64Text(data) == text
}

func base64Text(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// dataURLMedia is the media in a base64 data URL; nil for other URLs, and where dataURL would not give exactly that one.
func dataURLMedia(url string) *memorydv1.Media {
	rest, found := strings.CutPrefix(url, "data:")
	if !found {
		return nil
	}
	mediaType, text, found := strings.Cut(rest, ";base64,")
	if !found || strings.ContainsAny(mediaType, ";,") {
		return nil
	}
	data, ok := base64Bytes(text)
	if !ok {
		return nil
	}
	return inPlace(kept(mediaType), data)
}

func dataURL(mediaType string, data []byte) string {
	return fmt.Sprintf("data:%s;base64,%s", mediaType, base64Text(data))
}

// isURL says whether a reference is a URL, and not a provider's file id.
func isURL(uri string) bool { return strings.Contains(uri, ":") }

func isImage(media *memorydv1.Media) bool { return strings.HasPrefix(media.GetType(), "image/") }

// mention is a text for media that a format has no form for.
func mention(media *memorydv1.Media) string {
	kind := media.GetType()
	if kind == "" {
		kind = "file"
	}
	if uri, is := uriOf(media); is {
		return fmt.Sprintf("[%s: %s]", kind, uri)
	}
	return fmt.Sprintf("[%s, %d bytes]", kind, len(media.GetData()))
}
