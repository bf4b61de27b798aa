! Like NAS LU: steps of a flow whose implicit part is relaxed symmetrically (SSOR): a sweep from the first point to the last with the lower
! blocks of 5 by 5, one back with the upper blocks.
!
!     lu POINTS STEPS
program lu
  use flow
  implicit none
  double precision, parameter :: relaxation = 1.2d0
  integer :: round, i, j, k

  call begin(argument(1, 24))
  do round = 1, argument(2, 6)
    call find_change
    do k = 1, n
      do j = 1, n
        do i = 1, n
          call relax(-1, i, j, k)
        end do
      end do
    end do
    do k = n, 1, -1
      do j = n, 1, -1
        do i = n, 1, -1
          call relax(1, i, j, k)
        end do
      end do
    end do
    call add_change
  end do

contains

  ! Solves the point's own block for what its neighbours on one side, which are done, leave.
  subroutine relax(side, i, j, k)
    integer, intent(in) :: side, i, j, k
    double precision :: a(5, 5), own(5, 5), neighbours(5), unused(5, 5)
    integer :: d, e, at(3)
    own = 0
    unused = 0
    neighbours = 0
    do d = 1, 3
      at = [i, j, k]
      call jacobian(u(:, i, j, k), d, a)
      own = own - side * step / (2 * h) * a
      at(d) = at(d) + side
      call jacobian(u(:, at(1), at(2), at(3)), d, a)
      neighbours = neighbours + side * step / (2 * h) * matmul(a, change(:, at(1), at(2), at(3))) &
                   - smoothing * change(:, at(1), at(2), at(3))
    end do
    do e = 1, 5
      own(e, e) = own(e, e) + 1 + 6 * smoothing
    end do
    change(:, i, j, k) = change(:, i, j, k) - relaxation * neighbours
    call eliminate(own, change(:, i, j, k), unused)
  end subroutine
end program
