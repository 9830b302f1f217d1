package memoryd

import (
	"context"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// pages iterates over the items of all pages of a list, each page read when the one before is used up. All pages are of
// the store that the client uses when the list is made. The last page is that without a next_page_token, not an empty one.
// An error ends the iteration.
func pages[Request proto.Message, Response interface{ GetNextPageToken() string }, Item any](
	c *Client,
	ctx context.Context,
	request Request,
	read func(context.Context, Request, ...grpc.CallOption) (Response, error),
	setToken func(Request, string),
	items func(Response) []Item,
) iter.Seq2[Item, error] {
	ctx = c.pinned(ctx)
	return func(yield func(Item, error) bool) {
		page := proto.CloneOf(request)
		for {
			response, err := read(ctx, page)
			if err != nil {
				var none Item
				yield(none, err)
				return
			}
			for _, item := range items(response) {
				if !yield(item, nil) {
					return
				}
			}
			if response.GetNextPageToken() == "" {
				return
			}
			setToken(page, response.GetNextPageToken())
		}
	}
}

// Collect reads all items of a list into a slice; on an error, those that came before it.
func Collect[Item any](list iter.Seq2[Item, error]) ([]Item, error) {
	var all []Item
	for item, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}
