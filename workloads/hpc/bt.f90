! Like NAS BT: steps of a flow whose implicit part is solved along lines, one direction after the other: block-tridiagonal systems of
! blocks of 5 by 5.
!
!     bt POINTS STEPS
program bt
  use flow
  implicit none
  integer :: round, j, k
  double precision, allocatable :: line(:, :), right(:, :), upper(:, :, :), a(:, :, :)

  call begin(argument(1, 24))
  allocate (line(5, 0:n + 1), right(5, 0:n + 1), upper(5, 5, 0:n + 1), a(5, 5, 0:n + 1))
  do round = 1, argument(2, 4)
    call find_change
    do k = 1, n
      do j = 1, n
        line = u(:, :, j, k)
        right = change(:, :, j, k)
        call solve(1)
        change(:, 1:n, j, k) = right(:, 1:n)
      end do
    end do
    do k = 1, n
      do j = 1, n
        line = u(:, j, :, k)
        right = change(:, j, :, k)
        call solve(2)
        change(:, j, 1:n, k) = right(:, 1:n)
      end do
    end do
    do k = 1, n
      do j = 1, n
        line = u(:, j, k, :)
        right = change(:, j, k, :)
        call solve(3)
        change(:, j, k, 1:n) = right(:, 1:n)
      end do
    end do
    call add_change
  end do

contains

  subroutine solve(d)
    integer, intent(in) :: d
    double precision :: lower(5, 5), middle(5, 5)
    integer :: i, e
    do i = 0, n + 1
      call jacobian(line(:, i), d, a(:, :, i))
    end do
    upper(:, :, 0) = 0
    right(:, 0) = 0
    do i = 1, n
      lower = -step / (2 * h) * a(:, :, i - 1)
      upper(:, :, i) = step / (2 * h) * a(:, :, i + 1)
      middle = 0
      do e = 1, 5
        lower(e, e) = lower(e, e) - smoothing
        upper(e, e, i) = upper(e, e, i) - smoothing
        middle(e, e) = 1 + 2 * smoothing
      end do
      middle = middle - matmul(lower, upper(:, :, i - 1))
      right(:, i) = right(:, i) - matmul(lower, right(:, i - 1))
      call eliminate(middle, right(:, i), upper(:, :, i))
    end do
    do i = n - 1, 1, -1
      right(:, i) = right(:, i) - matmul(upper(:, :, i), right(:, i + 1))
    end do
  end subroutine
end program
