;; In how many ways n queens stand on a board without attacking each other: lists and recursion.
(define (safe? row rows)
  (let loop ((rows rows) (away 1))
    (or (null? rows)
        (and (not (= (car rows) row))
             (not (= (abs (- (car rows) row)) away))
             (loop (cdr rows) (+ away 1))))))

(define (ways n rows)
  (if (= (length rows) n)
      1
      (let loop ((row 0) (sum 0))
        (if (= row n)
            sum
            (loop (+ row 1) (if (safe? row rows) (+ sum (ways n (cons row rows))) sum))))))

(display (ways (string->number (cadr (command-line))) '()))
(newline)
