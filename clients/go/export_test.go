package memoryd

import "maps"

// RetriedMethods tells of each method whether it is tried again.
func RetriedMethods() map[string]bool { return maps.Clone(retried) }
