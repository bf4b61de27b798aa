! Arrays of Fortran in their forms. Names are groups of the table: FORM_kernel.
subroutine explicit_product(a, b, c, n)
  integer, intent(in) :: n
  real(8), intent(in) :: a(n, n), b(n, n)
  real(8), intent(out) :: c(n, n)
  integer :: i, j, k
  do j = 1, n
    do i = 1, n
      c(i, j) = 0
      do k = 1, n
        c(i, j) = c(i, j) + a(i, k) * b(k, j)
      end do
    end do
  end do
end subroutine

subroutine allocatable_add(n, total)
  integer, intent(in) :: n
  real(8), intent(out) :: total
  real(8), allocatable :: a(:, :), b(:, :)
  integer :: i, j
  allocate(a(n, n), b(n, n))
  do j = 1, n
    do i = 1, n
      a(i, j) = i + j
      b(i, j) = i - j
    end do
  end do
  total = 0
  do j = 1, n
    do i = 1, n
      total = total + a(i, j) * b(j, i)
    end do
  end do
end subroutine

subroutine assumed_scale(a, b)
  real(8), intent(inout) :: a(:, :)
  real(8), intent(in) :: b(:, :)
  integer :: i, j
  do j = 1, size(a, 2)
    do i = 1, size(a, 1)
      a(i, j) = a(i, j) + 2 * b(i, j)
    end do
  end do
end subroutine

subroutine openmp_product(a, b, c, n)
  integer, intent(in) :: n
  real(8), intent(in) :: a(n, n), b(n, n)
  real(8), intent(out) :: c(n, n)
  integer :: i, j, k
  real(8) :: total
  !$omp parallel do private(i, k, total)
  do j = 1, n
    do i = 1, n
      total = 0
      do k = 1, n
        total = total + a(i, k) * b(k, j)
      end do
      c(i, j) = total
    end do
  end do
end subroutine
