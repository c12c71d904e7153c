SELECT ord FROM strokes WHERE pen = $1 AND stroke = $2
