UPDATE namespaces SET epoch = greatest(epoch, $2) WHERE ns = $1
