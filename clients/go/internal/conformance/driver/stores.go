package main

import (
	memoryd "github.com/memoryd/memoryd/clients/go"
	pb "github.com/memoryd/memoryd/clients/go/internal/conformance/conformancepb"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func storesReply(stores []*memoryd.StoreInfo, err error) (*pb.Reply, error) {
	return &pb.Reply{Stores: &pb.Stores{Stores: stores}}, err
}

func storeReply(store *memoryd.StoreInfo, err error) (*pb.Reply, error) {
	return storesReply(one(store), err)
}

func (c *call) getStore(request *memorydv1.GetStoreRequest) (*pb.Reply, error) {
	return storeReply(c.client.Store(c.ctx, request.GetName()))
}

func (c *call) listStores() (*pb.Reply, error) { return storesReply(c.client.Stores(c.ctx)) }

func (c *call) switchStore(told *pb.SwitchStore) (*pb.Reply, error) {
	return storeReply(c.client.SwitchStore(c.ctx, told.GetName()))
}

func (c *call) storeType() (*pb.Reply, error) {
	kind, err := c.client.StoreType(c.ctx)
	return &pb.Reply{Text: kind}, err
}
